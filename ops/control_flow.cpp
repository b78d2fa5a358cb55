// Operators whose bodies are graphs: If, Loop, Scan and SequenceMap. The runtime executes them.
#include "ops/ir/op.h"

namespace lathe::ops {
namespace {

constexpr std::string_view kBranches[] = {"then_branch", "else_branch"};
constexpr std::string_view kBody[] = {"body"};
constexpr Attribute kScanAttributes[] = {{"num_scan_inputs", AttrKind::integer, Attribute::kRequired},
                                         {"scan_input_axes", AttrKind::integers},
                                         {"scan_input_directions", AttrKind::integers},
                                         {"scan_output_axes", AttrKind::integers},
                                         {"scan_output_directions", AttrKind::integers}};

}  // namespace

extern const OpDef op_if;
constinit const OpDef op_if = {.name = "If",
                               .inputs = 1,
                               .outputs = {1, Arity::kMany},
                               .subgraphs = kBranches,
                               .forms = 25,
                               .takes = {{DType::boolean, inputs(0)}},
                               .region = Region::if_};

extern const OpDef op_loop;
constinit const OpDef op_loop = {
    .name = "Loop",
    .inputs = {2, Arity::kMany},
    .outputs = {0, Arity::kMany},
    .subgraphs = kBody,
    .forms = 25,
    .takes = {{kIndices, inputs(0)}, {DType::boolean, inputs(1)}, {kAny, inputs_from(2), false}},
    .region = Region::loop};

extern const OpDef op_scan;
constinit const OpDef op_scan = {.name = "Scan",
                                 .inputs = {1, Arity::kMany},
                                 .outputs = {1, Arity::kMany},
                                 .attributes = kScanAttributes,
                                 .subgraphs = kBody,
                                 .forms = {8, 25},
                                 .takes = {{kAny - kPacked, inputs_from(0), false}},
                                 .region = Region::scan};

extern const OpDef op_sequence_map;
constinit const OpDef op_sequence_map = {.name = "SequenceMap",
                                         .inputs = {1, Arity::kMany},
                                         .outputs = {1, Arity::kMany},
                                         .subgraphs = kBody,
                                         .forms = {17, 17},
                                         .takes = {{kAny, inputs_from(1), false}},
                                         .region = Region::sequence_map};

}  // namespace lathe::ops
