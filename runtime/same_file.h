// SameFile: finds an engine that was loaded from the same file with the same options, to share its weights.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <lathe/options.h>

#include "frontends/source.h"

namespace lathe::runtime {

class EngineImpl;

/// One load from a file. Files are told by device, inode, size and time of change, never by path.
class SameFile {
 public:
  /// `passes`: what EngineOptions::passes came to.
  SameFile(const std::string& path, const frontends::ModelSource& source, const EngineOptions& options,
           const std::string& passes, const LoadOptions& load);

  /// A living engine of the same load whose companion files are still as they were; null where there is none.
  [[nodiscard]] std::shared_ptr<EngineImpl> find() const;
  /// Lets later loads find this one. Does nothing where a file has changed since it was read, or so shortly before that
  /// its time of change does not tell.
  void publish(const std::shared_ptr<EngineImpl>& engine, const frontends::ModelSource& source) const;

 private:
  std::string path_;
  std::string key_;  ///< empty: this load is not to be shared
};

}  // namespace lathe::runtime
