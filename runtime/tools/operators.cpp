// The operator table as programs see it.
#include <algorithm>
#include <tuple>

#include <lathe/tools.h>

#include "ops/ir/op.h"
#include "runtime/contraction.h"

namespace lathe::tools {

std::vector<OperatorInfo> operators() {
  std::vector<OperatorInfo> all;
  for (const ops::OpDef* op : ops::all_operators()) {
    const char* how = op->region != ops::Region::none ? "region" : op->lower ? "lower" : op->expr ? "expr" : "kernel";
    all.push_back({std::string(op->name), std::string(op->domain), op->since, how, runtime::offered_to_onednn(*op)});
  }
  std::sort(all.begin(), all.end(), [](const OperatorInfo& a, const OperatorInfo& b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  });
  return all;
}

}  // namespace lathe::tools
