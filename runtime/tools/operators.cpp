// The operator table as programs see it.
#include <algorithm>
#include <tuple>

#include <lathe/tools.h>

#include "ops/ir/op.h"
#include "runtime/contraction.h"

namespace lathe::tools {

namespace {

InputDTypes input_dtypes(const ops::Takes& rule, const ops::Arity& arity) {
  InputDTypes result;
  const int most = std::min(arity.most, ops::Takes::kInputs + 1);
  for (int i = 0; i < most; ++i) {
    if (rule.covers(i)) result.inputs.push_back(i);
  }
  result.and_behind = most > ops::Takes::kInputs && rule.covers(most);
  if (static_cast<int>(result.inputs.size()) == most) {
    result.inputs.clear();
    result.and_behind = false;
  }
  // A row of numbers up to the last that are told apart is "3 and those behind".
  while (result.and_behind && result.inputs.size() > 1 && result.inputs.end()[-2] + 1 == result.inputs.back())
    result.inputs.pop_back();
  for (int code = 1; code < DType::kCount; ++code) {
    const auto d = static_cast<DType::Code>(code);
    if (rule.dtypes.contains(DType(d))) result.dtypes.emplace_back(d);
  }
  result.alike = rule.alike;
  return result;
}

}  // namespace

std::vector<OperatorInfo> operators() {
  std::vector<OperatorInfo> all;
  for (const ops::OpDef* op : ops::all_operators()) {
    const char* how = op->region != ops::Region::none ? "region" : op->lower ? "lower" : op->expr ? "expr" : "kernel";
    std::vector<InputDTypes> takes;
    for (const ops::Takes& rule : op->takes) takes.push_back(input_dtypes(rule, op->inputs));
    all.push_back({.name = std::string(op->name),
                   .domain = std::string(op->domain),
                   .first = op->forms.first,
                   .since = op->forms.newest,
                   .takes = std::move(takes),
                   .how = how,
                   .onednn = runtime::offered_to_onednn(*op)});
  }
  std::sort(all.begin(), all.end(), [](const OperatorInfo& a, const OperatorInfo& b) {
    return std::tie(a.domain, a.name) < std::tie(b.domain, b.name);
  });
  return all;
}

}  // namespace lathe::tools
