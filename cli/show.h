// Values as a line of text, and as the tensors of an archive.
#pragma once

#include <string>
#include <vector>

#include <lathe/lathe.h>
#include <lathe/tools.h>

namespace lathe::cli {

/// "f32[1,1000]  0.12 -0.5 3.1 … 0.7"; sequences, optionals and maps by their parts.
std::string summary(const Value& value);

/// Appends the tensors of a value: a tensor under `name`, the parts of a sequence or map under "name.0", "name.key".
void flatten(const std::string& name, const Value& value, std::vector<tools::NamedTensor>& out);

/// Rows as left-aligned columns, two spaces apart.
std::string table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lathe::cli
