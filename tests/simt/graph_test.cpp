// Graphs: what they hold, that any order which the edges allow is taken, that stale pointers show.
#include <cstddef>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/simt/device.h"

namespace reprise::test {
namespace {

__global__ void add(int* value, int amount) { *value += amount; }
__global__ void times_ten(int* value) { *value *= 10; }

struct Holder {
  int* pointer;
  long number;
};
__global__ void by_struct(Holder holder) { *holder.pointer = 1; }

struct Padded {
  bool flag;
  long number;
};
__global__ void by_padded(int* value, Padded padded) {
  *value = padded.flag ? static_cast<int>(padded.number) : 0;
}

class Graph {
 public:
  explicit Graph(cudaStream_t stream) { expect_ok(cudaStreamEndCapture(stream, &graph_)); }
  ~Graph() {
    simt::reset_device();
    cudaGraphExecDestroy(executable_);
    cudaGraphDestroy(graph_);
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  cudaGraph_t get() const { return graph_; }
  cudaGraphExec_t executable() {
    if (executable_ == nullptr) expect_ok(cudaGraphInstantiate(&executable_, graph_, 0));
    return executable_;
  }

 private:
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

struct GraphFixture : CleanDevice {
  TestStream stream;
  TestStream side;
  TestEvent event;
  DeviceArray<int> value{std::vector<int>{1}};

  void begin() { expect_ok(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal)); }
  void wait(cudaStream_t waiting, cudaStream_t for_stream) {
    expect_ok(cudaEventRecord(event, for_stream));
    expect_ok(cudaStreamWaitEvent(waiting, event, 0));
  }
  void add_on(cudaStream_t on, int amount) {
    expect_ok(launch(add, {1, 1, 0, on}, value.data(), amount));
  }
  void times_ten_on(cudaStream_t on) { expect_ok(launch(times_ten, {1, 1, 0, on}, value.data())); }
  int replay(Graph& graph) {
    expect_ok(cudaMemsetAsync(value.data(), 0, 4, stream));
    expect_ok(cudaGraphLaunch(graph.executable(), stream));
    expect_ok(cudaStreamSynchronize(stream));
    return value.read()[0];
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(graphs, GraphFixture)

BOOST_AUTO_TEST_CASE(replays_repeat_what_was_captured) {
  begin();
  add_on(stream, 4);
  times_ten_on(stream);
  add_on(stream, 2);
  Graph graph(stream);
  for (int i = 0; i < 20; ++i) BOOST_TEST(replay(graph) == 42);
}

BOOST_AUTO_TEST_CASE(a_missing_edge_shows) {
  // The side branch adds to what the main branch multiplies, without waiting for it.
  const auto values = [&](bool with_edge) {
    begin();
    add_on(stream, 1);
    wait(side, stream);
    times_ten_on(stream);
    if (with_edge) wait(side, stream);
    add_on(side, 5);
    wait(stream, side);
    Graph graph(stream);
    std::set<int> seen;
    for (int i = 0; i < 40; ++i) seen.insert(replay(graph));
    return seen;
  };
  // All 40 orders alike would be an accident of probability 2^-39.
  BOOST_TEST(values(false) == (std::set<int>{15, 60}), boost::test_tools::per_element());
  BOOST_TEST(values(true) == std::set<int>{15}, boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_pointer_freed_before_the_replay_is_named) {
  void* memory = nullptr;
  expect_ok(cudaMalloc(&memory, 64));
  begin();
  expect_ok(launch(add, {1, 1, 0, stream}, static_cast<int*>(memory) + 2, 1));
  Graph direct(stream);
  begin();
  expect_ok(launch(by_struct, {1, 1, 0, stream}, Holder{static_cast<int*>(memory), 1}));
  Graph in_struct(stream);
  expect_ok(cudaGraphLaunch(direct.executable(), stream));
  expect_ok(cudaGraphLaunch(in_struct.executable(), stream));
  expect_ok(cudaStreamSynchronize(stream));
  expect_ok(cudaFree(memory));
  for (Graph* graph : {&direct, &in_struct}) {
    expect_ok(cudaGraphLaunch(graph->executable(), stream));
    expect(cudaErrorIllegalAddress, cudaStreamSynchronize(stream));
    expect_detail("kernel kernel_of_the_test: argument 0 points to byte ");
    expect_detail("(64 bytes, freed)");
    expect(cudaErrorIllegalAddress, cudaGetLastError());  // and it stays
    simt::reset_device();
  }
}

BOOST_AUTO_TEST_CASE(bytes_between_members_are_no_pointers) {
  void* freed = nullptr;
  expect_ok(cudaMalloc(&freed, 64));
  expect_ok(cudaFree(freed));
  // What was in memory before shows between the members of a struct.
  alignas(Padded) std::byte memory[sizeof(Padded)];
  std::memcpy(memory, &freed, sizeof freed);
  std::memcpy(memory + sizeof freed, &freed, sizeof freed);
  const bool flag = true;
  const long number = 3;
  std::memcpy(memory + offsetof(Padded, flag), &flag, sizeof flag);
  std::memcpy(memory + offsetof(Padded, number), &number, sizeof number);
  int* target = value.data();
  void* arguments[] = {&target, memory};  // not copied by the compiler, which may skip those bytes
  simt::register_kernel(by_padded, "by_padded");
  cudaLaunchConfig_t config{};
  config.gridDim = config.blockDim = dim3(1);
  config.stream = stream;
  expect_ok(cudaLaunchKernelExC(&config, reinterpret_cast<const void*>(by_padded), arguments));
  expect_ok(cudaStreamSynchronize(stream));
  BOOST_TEST(value.read()[0] == 3);
}

BOOST_AUTO_TEST_CASE(nodes_can_be_listed) {
  begin();
  expect_ok(cudaMemsetAsync(value.data(), 0, 4, stream));
  expect_ok(launch(add, {dim3(1, 2), dim3(3, 4), 16, stream}, value.data(), 7));
  expect_ok(cudaMemcpyAsync(value.data(), value.data(), 4, cudaMemcpyDeviceToDevice, stream));
  Graph graph(stream);
  std::size_t count = 0;
  expect_ok(cudaGraphGetNodes(graph.get(), nullptr, &count));
  BOOST_TEST(count == 3u);
  std::vector<cudaGraphNode_t> nodes(5, cudaGraphNode_t{});
  count = nodes.size();
  expect_ok(cudaGraphGetNodes(graph.get(), nodes.data(), &count));
  BOOST_TEST(count == 3u);
  const cudaGraphNodeType expected[] = {cudaGraphNodeTypeMemset, cudaGraphNodeTypeKernel,
                                        cudaGraphNodeTypeMemcpy};
  for (std::size_t i = 0; i < 3; ++i) {
    cudaGraphNodeType type{};
    expect_ok(cudaGraphNodeGetType(nodes[i], &type));
    BOOST_TEST(type == expected[i]);
  }
  cudaKernelNodeParams parameters{};
  expect(cudaErrorInvalidValue, cudaGraphKernelNodeGetParams(nodes[0], &parameters));
  expect_ok(cudaGraphKernelNodeGetParams(nodes[1], &parameters));
  BOOST_TEST(parameters.gridDim.y == 2u);
  BOOST_TEST(parameters.blockDim.x == 3u);
  BOOST_TEST(parameters.sharedMemBytes == 16u);
  BOOST_TEST(*static_cast<int*>(parameters.kernelParams[1]) == 7);
  const char* name = nullptr;
  expect_ok(cudaFuncGetName(&name, parameters.func));
  BOOST_TEST(std::string(name) == "kernel_of_the_test");
}

BOOST_AUTO_TEST_CASE(graphs_print_as_dot) {
  begin();
  add_on(stream, 4);
  expect_ok(cudaMemsetAsync(value.data(), 0, 4, stream));
  const Graph graph(stream);
  const auto path = std::filesystem::temp_directory_path() / "reprise_graph_test.dot";
  expect_ok(cudaGraphDebugDotPrint(graph.get(), path.c_str(), 0));
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  BOOST_TEST(text.str() ==
             "digraph graph_1 {\n"
             "  node_0 [label=\"kernel_of_the_test\"];\n"
             "  node_1 [label=\"fill 4 bytes\"];\n"
             "  node_0 -> node_1;\n"
             "}\n");
  expect(cudaErrorOperatingSystem,
         cudaGraphDebugDotPrint(graph.get(), (path / "no" / "folder").c_str(), 0));
}

BOOST_AUTO_TEST_CASE(updates_change_arguments_alone) {
  const auto captured = [&](int amount) {
    begin();
    add_on(stream, amount);
    times_ten_on(stream);
    return std::make_unique<Graph>(stream);
  };
  const auto graph = captured(4);
  BOOST_TEST(replay(*graph) == 40);
  const auto other = captured(5);
  cudaGraphExecUpdateResultInfo info{};
  expect_ok(cudaGraphExecUpdate(graph->executable(), other->get(), &info));
  BOOST_TEST(replay(*graph) == 50);

  const auto refused = [&](cudaGraphExecUpdateResult expected) {
    const Graph next(stream);
    expect(cudaErrorGraphExecUpdateFailure,
           cudaGraphExecUpdate(graph->executable(), next.get(), &info));
    BOOST_TEST(info.result == expected);
  };
  begin();
  add_on(stream, 4);
  refused(cudaGraphExecUpdateErrorTopologyChanged);
  begin();
  add_on(stream, 4);
  add_on(stream, 4);
  refused(cudaGraphExecUpdateErrorFunctionChanged);
  begin();
  add_on(stream, 4);
  expect_ok(cudaMemsetAsync(value.data(), 0, 4, stream));
  refused(cudaGraphExecUpdateErrorNodeTypeChanged);
  BOOST_TEST(replay(*graph) == 50);
}

BOOST_AUTO_TEST_CASE(a_launch_outlives_its_graph) {
  begin();
  add_on(stream, 4);
  {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    expect_ok(cudaStreamEndCapture(stream, &graph));
    expect_ok(cudaGraphInstantiate(&executable, graph, 0));
    expect_ok(cudaGraphLaunch(executable, stream));
    expect_ok(cudaGraphExecDestroy(executable));
    expect_ok(cudaGraphDestroy(graph));
  }
  expect_ok(cudaStreamSynchronize(stream));
  BOOST_TEST(value.read()[0] == 5);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace reprise::test
