// Cuts models into pieces: which nodes, what flows into them, and stubs in place of large weights.
#include "tests/fuzz/corpus.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>

#include <lathe/lathe.h>
#include <lathe/tools.h>

#include "tests/fuzz/inputs.h"
#include "tests/fuzz/onnx_tree.h"

namespace lathe::fuzz {
namespace {

constexpr std::size_t kStubAbove = 1024;                  // bytes of a tensor's data that stay
constexpr std::size_t kPieceWeights = 1U << 20U;          // bytes of the weights of a piece, once expanded
constexpr std::size_t kWholeModelWeights = 2500U << 10U;  // the same of a whole model
constexpr std::size_t kKnownElements = 64;                // integers up to this many flow in as constants

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(std::filesystem::file_size(path), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!in) throw std::runtime_error("cannot read " + path.string());
  return bytes;
}

// ---- names that a node uses ----

void collect_free(const OnnxField& graph, std::set<std::string>& used);

std::set<std::string> names_used(const OnnxField& node) {
  std::set<std::string> used;
  for (const std::string& name : node.texts(on::kNodeInput)) {
    if (!name.empty()) used.insert(name);
  }
  for (const OnnxField& attribute : node.fields) {
    if (attribute.kind != Kind::attribute) continue;
    for (const OnnxField& graph : attribute.fields) {
      if (graph.kind == Kind::graph) collect_free(graph, used);
    }
  }
  return used;
}

void collect_free(const OnnxField& graph, std::set<std::string>& used) {
  std::set<std::string> inside;
  std::set<std::string> wanted;
  for (const OnnxField& field : graph.fields) {
    if (field.number == on::kGraphNode) {
      for (const std::string& name : field.texts(on::kNodeOutput)) inside.insert(name);
      wanted.merge(names_used(field));
    } else if (field.number == on::kGraphInitializer) {
      inside.emplace(field.text(on::kTensorName));
    } else if (field.number == on::kGraphInput) {
      inside.emplace(field.text(1));
    } else if (field.number == on::kGraphOutput) {
      wanted.emplace(field.text(1));
    }
  }
  for (const std::string& name : wanted) {
    if (!inside.count(name)) used.insert(name);
  }
}

// ---- stubs ----

OnnxField dims_tensor(const std::string& name, const std::vector<std::int64_t>& dims) {
  OnnxField tensor;
  tensor.number = on::kGraphInitializer;
  tensor.kind = Kind::tensor;
  tensor.add_integer(on::kTensorDims, static_cast<std::int64_t>(dims.size()));
  tensor.add_integer(on::kTensorType, DType::i64);
  tensor.add_text(on::kTensorName, name);
  for (const std::int64_t d : dims) tensor.add_integer(on::kTensorInt64s, d);
  return tensor;
}

OnnxField expand_node(const std::string& from, const std::string& dims, const std::string& to) {
  OnnxField node;
  node.number = on::kGraphNode;
  node.kind = Kind::node;
  node.add_text(on::kNodeInput, from);
  node.add_text(on::kNodeInput, dims);
  node.add_text(on::kNodeOutput, to);
  node.add_text(on::kNodeOp, "Expand");
  return node;
}

std::size_t data_bytes(const OnnxField& tensor) {
  std::size_t bytes = 0;
  for (const OnnxField& field : tensor.fields) {
    if (field.kind == Kind::real || (field.kind == Kind::integer && field.number > 4)) bytes += 4;
    if (field.kind == Kind::bytes || field.kind == Kind::other) bytes += field.bytes.size();
  }
  return bytes;
}

/// Keeps the last row of a large tensor (its first element where that row is long); the node that is returned expands
/// it to what it was. Nothing where the tensor is small.
std::optional<OnnxField> make_stub(OnnxField& tensor, const std::string& name, OnnxField& dims) {
  const std::size_t total = data_bytes(tensor);
  const std::vector<std::int64_t> extents = tensor.integers(on::kTensorDims);
  std::size_t elements = 1;
  for (const std::int64_t d : extents) elements *= static_cast<std::size_t>(d);
  if (total <= kStubAbove || elements == 0) return std::nullopt;
  const std::size_t keep = extents.back() <= 64 ? static_cast<std::size_t>(extents.back()) : 1;
  OnnxField stub;
  stub.number = tensor.number;
  stub.kind = Kind::tensor;
  for (std::size_t i = 0; i < extents.size(); ++i) {
    stub.add_integer(on::kTensorDims, i + 1 == extents.size() ? static_cast<std::int64_t>(keep) : 1);
  }
  std::map<std::uint32_t, std::size_t> kept;
  for (const OnnxField& field : tensor.fields) {
    if (field.number == on::kTensorDims || field.number == on::kTensorName) continue;
    OnnxField part = field;
    if (field.number == on::kTensorRaw) part.bytes.resize(field.bytes.size() / elements * keep);
    const bool data = field.kind == Kind::real || (field.kind == Kind::integer && field.number > 4);
    if (data && kept[field.number]++ >= keep) continue;
    stub.add(std::move(part));
  }
  stub.add_text(on::kTensorName, name + ".stub");
  tensor = std::move(stub);
  dims = dims_tensor(name + ".dims", extents);
  return expand_node(name + ".stub", name + ".dims", name);
}

/// Cuts every large tensor of a graph and its subgraphs; adds the bytes they had to `weights`.
void cut_weights(OnnxField& graph, std::size_t& weights) {
  std::vector<OnnxField> expands;
  std::vector<OnnxField> rest;
  for (OnnxField& field : graph.fields) {
    OnnxField dims;
    if (field.number == on::kGraphInitializer) {
      weights += data_bytes(field);
      if (auto expand = make_stub(field, std::string(field.text(on::kTensorName)), dims)) {
        expands.push_back(std::move(*expand));
        rest.push_back(std::move(dims));
      }
    } else if (field.number == on::kGraphNode) {
      for (OnnxField& attribute : field.fields) {
        if (attribute.kind != Kind::attribute) continue;
        for (OnnxField& part : attribute.fields) {
          if (part.kind == Kind::graph) cut_weights(part, weights);
          if (part.kind != Kind::tensor || field.text(on::kNodeOp) != "Constant") continue;
          weights += data_bytes(part);
          const std::string name(field.text(on::kNodeOutput));
          if (auto expand = make_stub(part, name, dims)) {
            part.number = on::kGraphInitializer;
            rest.push_back(part);
            rest.push_back(std::move(dims));
            field = std::move(*expand);
            break;
          }
        }
        if (field.text(on::kNodeOp) == "Expand") break;
      }
    }
  }
  expands.insert(expands.end(), graph.fields.begin(), graph.fields.end());
  expands.insert(expands.end(), rest.begin(), rest.end());
  graph.fields = std::move(expands);
}

// ---- one model ----

struct Source {
  std::string name;
  OnnxField model;
  [[nodiscard]] OnnxField& graph() {
    for (OnnxField& field : model.fields) {
      if (field.kind == Kind::graph) return field;
    }
    return model.add_message(on::kModelGraph, Kind::graph);
  }
};

/// The branch of that position in place of each If of the main graph, so that pieces are cut from branches too.
bool inline_branches(OnnxField& graph, const std::string& branch) {
  bool found = false;
  for (int level = 0; level < 4; ++level) {
    std::vector<OnnxField> fields;
    bool again = false;
    for (const OnnxField& field : graph.fields) {
      const OnnxField* body = nullptr;
      if (field.number == on::kGraphNode && field.text(on::kNodeOp) == "If") {
        for (const OnnxField& attribute : field.fields) {
          if (attribute.kind == Kind::attribute && attribute.text(on::kAttributeName) == branch) {
            body = attribute.find(on::kAttributeGraph);
          }
        }
      }
      if (!body) {
        fields.push_back(field);
        continue;
      }
      again = true;
      std::vector<std::string> results;
      for (const OnnxField& part : body->fields) {
        if (part.number == on::kGraphNode || part.number == on::kGraphInitializer) fields.push_back(part);
        if (part.number == on::kGraphOutput) results.emplace_back(part.text(1));
      }
      const std::vector<std::string> outputs = field.texts(on::kNodeOutput);
      for (std::size_t i = 0; i < std::min(outputs.size(), results.size()); ++i) {
        OnnxField& node = fields.emplace_back();
        node.number = on::kGraphNode;
        node.kind = Kind::node;
        node.add_text(on::kNodeInput, results[i]);
        node.add_text(on::kNodeOutput, outputs[i]);
        node.add_text(on::kNodeOp, "Identity");
      }
    }
    graph.fields = std::move(fields);
    if (!again) break;
    found = true;
  }
  return found;
}

/// Every value between nodes that one run saw.
using Values = std::map<std::string, Value>;

Inputs probe_inputs(const Engine& engine, std::int64_t extent, Random& random) {
  Inputs inputs;
  for (const ValueInfo& input : engine.inputs()) {
    if (!input.required) continue;
    Shape shape;
    if (input.dims) {
      const std::size_t rank = input.dims->size();
      for (std::size_t i = 0; i < rank; ++i) {
        const bool free = i + 1 == rank || (rank == 4 && i >= 2);
        const std::int64_t open = free ? extent : 1;
        shape.push_back((*input.dims)[i].extent < 0 ? open : (*input.dims)[i].extent);
      }
    }
    inputs.add(input.name, random_tensor(input.dtype, shape, random, false));
  }
  return inputs;
}

/// Takes out the nodes that this build has no operator for, and all that depends on them.
void drop_unsupported(OnnxField& graph) {
  std::set<std::string> known;
  for (const tools::OperatorInfo& op : tools::operators()) known.insert(op.domain + "::" + op.name);
  std::set<std::string> missing;
  std::erase_if(graph.fields, [&](const OnnxField& field) {
    if (field.number != on::kGraphNode) return false;
    const std::set<std::string> used = names_used(field);
    const bool sound = known.count(std::string(field.text(7)) + "::" + std::string(field.text(on::kNodeOp))) != 0 &&
                       std::none_of(used.begin(), used.end(), [&](const auto& name) { return missing.count(name); });
    if (sound) return false;
    for (const std::string& name : field.texts(on::kNodeOutput)) missing.insert(name);
    return true;
  });
}

/// Runs the model with every value as an output.
Values probe(Source source, Random& random) {
  OnnxField& graph = source.graph();
  drop_unsupported(graph);
  std::erase_if(graph.fields, [](const OnnxField& f) { return f.number == on::kGraphOutput; });
  std::vector<std::string> names;
  for (const OnnxField& field : graph.fields) {
    if (field.number != on::kGraphNode) continue;
    for (const std::string& name : field.texts(on::kNodeOutput)) {
      if (!name.empty()) names.push_back(name);
    }
  }
  for (const std::string& name : names) graph.add_message(on::kGraphOutput, Kind::value_info).add_text(1, name);
  const std::string bytes = write_onnx(source.model);
  EngineOptions options;
  options.threads = 1;
  const auto engine = Engine::try_load(std::as_bytes(std::span(bytes)), options);
  if (!engine) {
    std::fprintf(stderr, "%s is not cut into pieces: %s\n", source.name.c_str(), engine.error().message.c_str());
    return {};
  }
  Error last;
  for (const std::int64_t extent : {64, 48, 512, 256, 7}) {
    const Inputs inputs = probe_inputs(*engine, extent, random);
    auto outputs = engine->try_run(inputs);
    if (!outputs) {
      last = outputs.error();
      continue;
    }
    Values values;
    for (const NamedValue& output : *outputs) values[output.name] = output.value;
    for (const NamedValue& input : inputs.values()) values[input.name] = input.value;
    return values;
  }
  std::fprintf(stderr, "%s is not cut into pieces: %s\n", source.name.c_str(), last.message.c_str());
  return {};
}

void declare(OnnxField& info, const std::string& name, const Tensor& tensor, bool open_batch) {
  info.add_text(1, name);
  OnnxField& type = info.add_message(2, Kind::type).add_message(1, Kind::tensor_type);
  type.add_integer(1, tensor.dtype());
  OnnxField& shape = type.add_message(2, Kind::shape);
  for (int i = 0; i < tensor.shape().rank(); ++i) {
    OnnxField& dim = shape.add_message(1, Kind::dim);
    if (i == 0 && open_batch) {
      dim.add_text(2, "n");
    } else {
      dim.add_integer(1, tensor.shape()[i]);
    }
  }
}

class Cutter {
 public:
  Cutter(Source source, Values values) : source_(std::move(source)), values_(std::move(values)) {
    for (const OnnxField& field : source_.graph().fields) {
      if (field.number == on::kGraphInitializer) constants_[std::string(field.text(on::kTensorName))] = &field;
      if (field.number != on::kGraphNode) continue;
      const bool constant = field.text(on::kNodeOp) == "Constant";
      if (!constant) nodes_.push_back(&field);
      for (const std::string& name : field.texts(on::kNodeOutput)) {
        if (constant) constants_[name] = &field;
      }
    }
    std::map<std::string, std::size_t> makers;
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      used_.push_back(names_used(*nodes_[i]));
      for (const std::string& name : nodes_[i]->texts(on::kNodeOutput)) makers[name] = i;
    }
    near_.resize(nodes_.size());
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      for (const std::string& name : used_[i]) {
        const auto maker = makers.find(name);
        if (maker == makers.end()) continue;
        near_[i].insert(maker->second);
        near_[maker->second].insert(i);
      }
    }
  }

  [[nodiscard]] bool empty() const { return nodes_.empty(); }

  /// A piece around a random node; empty where that one does not work out.
  std::string cut(Random& random) {
    const std::set<std::size_t> chosen = choose(1 + random.below(12), random);
    OnnxField graph;
    graph.number = on::kModelGraph;
    graph.kind = Kind::graph;
    std::set<std::string> made;
    std::set<std::string> read;
    for (const std::size_t i : chosen) {
      for (const std::string& name : nodes_[i]->texts(on::kNodeOutput)) made.insert(name);
      read.insert(used_[i].begin(), used_[i].end());
    }
    const bool open_batch = random.one_in(3);
    for (const std::string& name : read) {
      if (made.count(name)) continue;
      if (!add_source(graph, name, open_batch, random)) return {};
    }
    for (const std::size_t i : chosen) graph.add(*nodes_[i]);
    for (const std::string& name : made) {
      if (name.empty() || (read.count(name) && !random.one_in(4))) continue;
      OnnxField& info = graph.add_message(on::kGraphOutput, Kind::value_info);
      const auto value = values_.find(name);
      if (value != values_.end() && value->second.tensor().defined() && random.one_in(2)) {
        declare(info, name, value->second.tensor(), open_batch);
      } else {
        info.add_text(1, name);
      }
    }
    std::size_t weights = 0;
    cut_weights(graph, weights);
    if (weights > kPieceWeights) return {};
    OnnxField model = source_.model;
    std::erase_if(model.fields, [](const OnnxField& f) { return f.kind == Kind::graph; });
    model.add(std::move(graph));
    return write_onnx(model);
  }

 private:
  std::set<std::size_t> choose(std::size_t count, Random& random) {
    std::set<std::size_t> chosen = {random.below(nodes_.size())};
    while (chosen.size() < std::min(count, nodes_.size())) {
      std::set<std::size_t> near;
      for (const std::size_t i : chosen) near.insert(near_[i].begin(), near_[i].end());
      for (const std::size_t i : chosen) near.erase(i);
      if (near.empty()) break;
      chosen.insert(*std::next(near.begin(), static_cast<std::ptrdiff_t>(random.below(near.size()))));
    }
    return chosen;
  }

  bool add_source(OnnxField& graph, const std::string& name, bool open_batch, Random& random) {
    if (const auto constant = constants_.find(name); constant != constants_.end()) {
      graph.add(*constant->second);
      return true;
    }
    const auto value = values_.find(name);
    if (value == values_.end() || !value->second.tensor().defined()) return false;
    const Tensor& tensor = value->second.tensor();
    if (tensor.bytes() > kPieceWeights) return false;
    const bool known = (tensor.dtype() == DType::i64 || tensor.dtype() == DType::i32) &&
                       tensor.size() <= static_cast<std::int64_t>(kKnownElements) && !random.one_in(4);
    if (!known) {
      declare(graph.add_message(on::kGraphInput, Kind::value_info), name, tensor, open_batch);
      return true;
    }
    OnnxField& initializer = graph.add_message(on::kGraphInitializer, Kind::tensor);
    for (const std::int64_t d : tensor.shape().dims()) initializer.add_integer(on::kTensorDims, d);
    initializer.add_integer(on::kTensorType, tensor.dtype());
    initializer.add_text(on::kTensorName, name);
    initializer.add_bytes(on::kTensorRaw, {static_cast<const char*>(tensor.data()), tensor.bytes()});
    return true;
  }

  Source source_;
  Values values_;
  std::map<std::string, const OnnxField*> constants_;  // into source_
  std::vector<const OnnxField*> nodes_;
  std::vector<std::set<std::string>> used_;  // by node
  std::vector<std::set<std::size_t>> near_;  // by node: what it reads from and what reads from it
};

void cut_model(const Source& source, int pieces, Random& random, std::vector<Sample>& corpus) {
  Source copy = source;
  Cutter cutter(std::move(copy), probe(source, random));
  if (cutter.empty()) return;
  int made = 0;
  for (int tries = 0; made < pieces && tries < 8 * pieces; ++tries) {
    std::string piece = cutter.cut(random);
    if (!piece.empty()) corpus.push_back({source.name + "/" + std::to_string(made++), std::move(piece)});
  }
}

}  // namespace

std::vector<Sample> make_corpus(const std::string& folder, int pieces, std::uint64_t seed) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Sample> corpus;
  for (const std::filesystem::path& path : paths) {
    Random random(seed++);
    Source source = {path.stem().string(), parse_onnx(read_file(path))};
    Source whole = source;
    std::size_t weights = 0;
    cut_weights(whole.graph(), weights);
    if (weights <= kWholeModelWeights) corpus.push_back({source.name, write_onnx(whole.model)});
    cut_model(source, pieces, random, corpus);
    for (const char* branch : {"then_branch", "else_branch"}) {
      Source straight = source;
      straight.name += std::string("/") + branch;
      if (inline_branches(straight.graph(), branch)) cut_model(straight, pieces / 2, random, corpus);
    }
  }
  return corpus;
}

void write_corpus(const std::string& path, const std::vector<Sample>& corpus) {
  std::ofstream out(path, std::ios::binary);
  for (const Sample& sample : corpus) {
    out << sample.name << ' ' << sample.model.size() << '\n';
    out.write(sample.model.data(), static_cast<std::streamsize>(sample.model.size()));
  }
}

std::vector<Sample> read_corpus(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  std::vector<Sample> corpus;
  Sample sample;
  std::size_t size = 0;
  while (in >> sample.name >> size) {
    in.get();
    sample.model.resize(size);
    in.read(sample.model.data(), static_cast<std::streamsize>(size));
    corpus.push_back(sample);
  }
  return corpus;
}

}  // namespace lathe::fuzz
