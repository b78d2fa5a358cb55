// The models that get damaged: pieces of a few nodes, and whole models, with large weights cut to a stub.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lathe::fuzz {

struct Sample {
  std::string name;   ///< of the model and the piece: "yolo-isbn/3"
  std::string model;  ///< its bytes
};

/// `pieces` pieces of each model in `folder`, and the whole models whose weights are small. The shapes and dtypes
/// between nodes come from one run of each model, so the pieces declare what really flows there.
std::vector<Sample> make_corpus(const std::string& folder, int pieces, std::uint64_t seed);

void write_corpus(const std::string& path, const std::vector<Sample>& corpus);
std::vector<Sample> read_corpus(const std::string& path);

}  // namespace lathe::fuzz
