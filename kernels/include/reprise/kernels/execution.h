// What an op runs on: the workers of the CPU, or the stream of a device.
#pragma once

namespace reprise {

class ThreadPool;

struct Execution {
  ThreadPool* pool = nullptr;  // CPU
  void* stream = nullptr;      // a device's stream; unused on the CPU
};

}  // namespace reprise
