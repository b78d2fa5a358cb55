// Lathe: loads a trained model and turns it into machine code for the shapes that actually arrive.
//
//   auto engine = lathe::Engine::load("model.onnx");
//   auto outputs = engine.run({{"input", lathe::Tensor::from(pixels, {1, 3, 224, 224})}});
//   std::span<const float> scores = outputs["scores"].view<float>();
//
// engine.h    Engine: load, run, prepare        tensor.h   Tensor and Value: what goes in and comes out
// session.h   Session: bound buffers, real time options.h  limits, threads, memory, deadlines
// error.h     Result, Error, Exception          operator.h operators of the application's own
// tools.h     (not included here) for programs about models
#pragma once

#include <lathe/dtype.h>        // IWYU pragma: export
#include <lathe/engine.h>       // IWYU pragma: export
#include <lathe/error.h>        // IWYU pragma: export
#include <lathe/info.h>         // IWYU pragma: export
#include <lathe/operator.h>     // IWYU pragma: export
#include <lathe/options.h>      // IWYU pragma: export
#include <lathe/session.h>      // IWYU pragma: export
#include <lathe/shape.h>        // IWYU pragma: export
#include <lathe/tensor.h>       // IWYU pragma: export
#include <lathe/thread_pool.h>  // IWYU pragma: export
