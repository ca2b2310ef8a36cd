// A CUDA driver without a GPU: memory is the host's between guard pages, kernels run on the CPU, one thread at a time.
// Threads go in ascending order in every other launch and in descending order in those between, so that results which
// depend on it differ. What hardware leaves undefined fails.
//
// With the setting `strict` kernels that may start before those before them are done fail if they read what these write, or write, before they have waited.
//
// Streams do their work when something waits for it and not before, so that what relies on it being done already, on
// another stream's work or on something that has been released, fails. With the setting `at_once` they do it at once.
#include <csignal>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>
#include <ucontext.h>

#include "simt.cuh"

#include "fibers.h"
#include "launch.h"

namespace emu {

static Kernel* kernels;
Kernel::Kernel(const char* name, size_t args, u32 threads, void (*run)(const void*))
    : name(name), args(args), threads(threads), run(run), next(kernels) {
    kernels = this;
}
static Kernel* find(const char* name) {
    for (Kernel* k = kernels; k; k = k->next)
        if (!strcmp(k->name, name)) return k;
    return nullptr;
}

// --- Memory --------------------------------------------------------------------------------------------

static constexpr size_t PAGE = 4096;

// Ends at a page that cannot be touched, as does the page before its first; all bytes 0xff, NaN in every type. Starts at a
// multiple of 16, so that just what was asked for can be touched if that is one, too.
struct Guarded {
    u8* map;
    size_t size;
    u8* at;
    explicit Guarded(size_t n) {
        n = (n + 15) / 16 * 16;
        size_t pages = (n + PAGE - 1) / PAGE * PAGE;
        size = pages + 2 * PAGE;
        map = static_cast<u8*>(mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        if (pages) mprotect(map + PAGE, pages, PROT_READ | PROT_WRITE);
        at = map + PAGE + pages - n;
        memset(at, 0xff, n);
    }
    void free() { munmap(map, size); }
    bool has(const void* p) const { return p >= map + PAGE && p < map + size - PAGE; }
    void allow(int what) const { mprotect(map + PAGE, size - 2 * PAGE, what); }
};

// With the setting `strict`, of allocations: what kernels have written that may still be running, and what the present one has.
static std::map<uintptr_t, std::pair<Guarded, size_t>> allocations;
static std::set<uintptr_t> written_before, written_now;
static bool strict;
// A kernel touches memory that is not as open to it as it could be: what others write once it has waited for these, what nobody has written until it writes there.
static bool opens(const void* p, bool writes) {
    for (auto& [at, of] : allocations) {
        if (!of.first.has(p)) continue;
        if (!has_waited() && writes) fail("a thread that writes without having waited for the kernels before");
        if (!has_waited() && written_before.count(at)) fail("a thread that reads what kernels before write without having waited for them");
        if (writes) written_now.insert(at);
        of.first.allow(writes || written_before.count(at) ? PROT_READ | PROT_WRITE : PROT_READ);
        return true;
    }
    return false;
}
static void protect_before_block() {
    if (strict)
        for (uintptr_t at : written_before) allocations.at(at).first.allow(PROT_NONE);
}

// Threads have one handler, copies of this library one each.
static struct sigaction before;
static pthread_t runner;
static void on_fault(int signal, siginfo_t* info, void* context) {
    const bool ours = running && pthread_equal(runner, pthread_self());
    if (ours && strict && opens(info->si_addr, static_cast<ucontext_t*>(context)->uc_mcontext.gregs[REG_ERR] & 2)) return;
    if (ours) {
        fprintf(stderr, "kernel %s touches %p, which is in no buffer: block %u %u %u, thread %u\n", running->name, info->si_addr,
                now.block[0], now.block[1], now.block[2], current);
        _Exit(99);
    }
    if (before.sa_flags & SA_SIGINFO) return before.sa_sigaction(signal, info, context);
    sigaction(signal, &before, nullptr);
}

// --- The driver's state ----------------------------------------------------------------------------------

static std::recursive_mutex lock;
static std::map<std::string, long> settings = {
    {"driver_version", 13000}, {"device_count", 1}, {"capability", 90}, {"memory", 1L << 32}, {"init", 0}, {"launch", 0}, {"wait", 0},
    {"load", 0}, {"host_memory", 1L << 32}, {"at_once", 0}, {"strict", 0}, {"gfx", 0x1100},
};
static std::map<void*, Guarded> hosts;
static size_t used;
static std::set<std::string> launched;
static u32 launches;
static int sticky, kernel_starts, early_starts, graph_starts, graph_ends;
// Bytes of shared memory that a block can have.
static int most_shared() { return (settings["capability"] == 90 || settings["capability"] == 100 ? 227 : 99) << 10; }
bool by_shuffles() { return launches % 8 == 3; }

// Work in the order in which it was queued, and how many pieces of it were queued and done.
struct Queue {
    std::deque<std::function<void()>> work;
    u64 queued = 0, done = 0;
};
// Queues also outlive their streams: work is done even if its stream is destroyed.
static std::set<std::shared_ptr<Queue>> queues;

struct Stream;
// What is recorded, and the streams that take part. The first one began it.
struct Graph {
    std::vector<std::function<void()>> work;
    std::vector<Stream*> streams;
    bool invalid = false;
};
struct Stream {
    std::shared_ptr<Queue> queue = std::make_shared<Queue>();
    Graph* capture = nullptr;
};
// How far a stream had come, or that it was recording.
struct Event {
    std::shared_ptr<Queue> queue;
    u64 count = 0;
    Graph* capture = nullptr;
    bool reached() const { return !queue || queue->done >= count; }
};
struct Module;
struct Function { Kernel* kernel; Module* module; u32 max_shared = 48 << 10; };
struct Module { std::map<std::string, Function> functions; bool loaded = true; };
static int modules;

// The recordings of this thread. It must neither allocate, free nor load then: whatever does ends them.
static thread_local std::vector<Graph*> recordings;
static bool recording() {
    for (Graph* g : recordings) g->invalid = true;
    return !recordings.empty();
}

// Contexts of devices, and those that this thread has put on top of each other.
static u8 contexts[16];
static thread_local std::vector<void*> entered;
static bool inside() { return !entered.empty() && entered.back() >= contexts && entered.back() < contexts + sizeof contexts; }

// Does the first pieces of a queue's work.
static void drain(Queue& q, u64 count) {
    while (q.done < count && !q.work.empty()) {
        auto work = std::move(q.work.front());
        q.work.pop_front();
        q.done++;
        work();
    }
}
static void drain_all() {
    for (const auto& q : std::set<std::shared_ptr<Queue>>(queues)) {
        drain(*q, q->queued);
        if (q.use_count() == 2) queues.erase(q);
    }
}

static void run(const Function* f, const u32 (&grid)[3], u32 threads, u32 shared_bytes, const std::vector<u8>& args, bool early) {
    const Kernel* k = f->kernel;
    if (sticky) return;
    if (!f->module->loaded) {
        fprintf(stderr, "kernel %s: unloaded before it ran\n", k->name);
        sticky = 719;
        return;
    }
    strict = settings["strict"];
    // With strict copies of this library kernels run one at a time, as their faults need the copy's own handler. All copies share this lock.
    if (strict) flockfile(stdin);
    static bool handling;
    if (!handling) {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_NODEFER;
        sigaction(SIGSEGV, &action, &before);
        handling = true;
    }
    launched.insert(k->name);
    launched.insert(std::string(k->name) + " by " + std::to_string(threads) + " threads");
    Guarded room(shared_bytes);
    running = k;
    runner = pthread_self();
    arguments = args.data();
    failure = nullptr;
    now.threads = threads;
    now.shared = room.at;
    now.shared_bytes = shared_bytes;
    memcpy(now.grid, grid, sizeof grid);
    bool descending = launches++ % 2;
    if (!early) written_before.clear();
    for (auto& [at, of] : allocations)
        if (strict) of.first.allow(PROT_READ);
    for (u32 z = 0; z < grid[2]; z++)
        for (u32 y = 0; y < grid[1]; y++)
            for (u32 x = 0; x < grid[0] && !failure; x++) {
                now.block[0] = x, now.block[1] = y, now.block[2] = z;
                memset(room.at, 0xff, shared_bytes);
                protect_before_block();
                run_block(descending);
            }
    for (auto& [at, of] : allocations)
        if (strict) of.first.allow(PROT_READ | PROT_WRITE);
    written_before.merge(written_now);
    written_now.clear();
    if (failure) {
        fprintf(stderr, "kernel %s: %s (block %u %u %u, thread %u)\n", k->name, failure, now.block[0], now.block[1], now.block[2], current);
        sticky = 719;
    }
    running = nullptr;
    room.free();
    if (strict) {
        sigaction(SIGSEGV, &before, nullptr);
        handling = false;
        funlockfile(stdin);
    }
}

static int queue(void* stream, std::function<void()> work) {
    Stream* s = static_cast<Stream*>(stream);
    if (sticky) return sticky;
    if (s->capture && s->capture->invalid) return 901;
    if (s->capture) return s->capture->work.push_back(std::move(work)), 0;
    s->queue->work.push_back(std::move(work));
    s->queue->queued++;
    if (settings["at_once"]) drain(*s->queue, s->queue->queued);
    return 0;
}
}  // namespace emu

// --- The Driver API ------------------------------------------------------------------------------------------

using namespace emu;
#define API extern "C" __attribute__((visibility("default"))) int
#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)
// For what needs a context.
#define INSIDE LOCKED; if (!inside()) return 201

API emu_set(const char* key, long value) { LOCKED; settings.at(key) = value; return 0; }
API emu_get(const char* key) { LOCKED; return static_cast<int>(settings.at(key)); }
// Whether a kernel has run since the last question; "NAME by N threads": with that many.
API emu_launched(const char* name) { LOCKED; return launched.erase(name) > 0; }
// Bytes of a kernel's arguments, or -1.
API emu_args(const char* name) { Kernel* k = find(name); return k ? static_cast<int>(k->args) : -1; }
// Allocations that exist.
API emu_allocations(const char*) { LOCKED; return static_cast<int>(allocations.size()); }
// Kernels that the host has started, those of them that need not wait for others, recordings that it has started, or that have been done.
API emu_count(const char* what) {
    LOCKED;
    return !strcmp(what, "kernels") ? kernel_starts : !strcmp(what, "early kernels") ? early_starts : strcmp(what, "graphs") ? graph_ends : graph_starts;
}
// Modules that are loaded.
API emu_modules(const char*) { LOCKED; return modules; }

API cuInit(unsigned) { return static_cast<int>(settings["init"]); }
API cuDriverGetVersion(int* v) { *v = static_cast<int>(settings["driver_version"]); return 0; }
API cuGetErrorName(int code, const char** name) {
    static const std::map<int, const char*> names = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"},
        {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {201, "CUDA_ERROR_INVALID_CONTEXT"}, {400, "CUDA_ERROR_INVALID_HANDLE"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {999, "CUDA_ERROR_UNKNOWN"},
    };
    auto found = names.find(code);
    *name = found == names.end() ? nullptr : found->second;
    return found == names.end();
}
API cuDeviceGetCount(int* n) { *n = static_cast<int>(settings["device_count"]); return *n ? 0 : 100; }
API cuDeviceGet(int* d, int i) { *d = i; return 0; }
API cuDeviceGetName(char* name, int n, int) { snprintf(name, static_cast<size_t>(n), "emulated GPU"); return 0; }
API cuDeviceTotalMem_v2(size_t* n, int) { *n = static_cast<size_t>(settings["memory"]); return 0; }
API cuDeviceGetAttribute(int* v, int what, int) {
    switch (what) {
    case 1: *v = 1024; break;
    case 5: *v = 2147483647; break;
    case 6: case 7: *v = 65535; break;
    case 16: *v = 4; break;
    case 38: *v = 1 << 20; break;
    case 75: *v = static_cast<int>(settings["capability"] / 10); break;
    case 76: *v = static_cast<int>(settings["capability"] % 10); break;
    case 97: *v = most_shared(); break;
    default: return 1;
    }
    return 0;
}
API cuDevicePrimaryCtxRetain(void** c, int device) { return *c = contexts + device, 0; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxPushCurrent_v2(void* c) { return entered.push_back(c), 0; }
API cuCtxPopCurrent_v2(void** c) {
    if (entered.empty()) return 201;
    *c = entered.back();
    entered.pop_back();
    return 0;
}
API cuCtxGetCurrent(void** c) { return *c = entered.empty() ? nullptr : entered.back(), 0; }
API cuCtxSynchronize() {
    INSIDE;
    if (recording()) return 900;
    drain_all();
    return sticky ? sticky : static_cast<int>(settings["wait"]);
}
API cuMemGetInfo_v2(size_t* free, size_t* total) {
    INSIDE;
    *total = static_cast<size_t>(settings["memory"]);
    *free = *total - used;
    return 0;
}
API cuMemAlloc_v2(uint64_t* p, size_t n) {
    INSIDE;
    if (recording()) return 900;
    // What else is asked for could not end at a guard page.
    if (n == 0 || n % 16) return 1;
    if (n > static_cast<size_t>(settings["memory"]) - used) return 2;
    Guarded g(n);
    used += n;
    *p = reinterpret_cast<uintptr_t>(g.at);
    allocations.insert({*p, {g, n}});
    return 0;
}
// Waits for all that is queued.
API cuMemFree_v2(uint64_t p) {
    INSIDE;
    if (recording()) return 900;
    auto found = allocations.find(p);
    if (found == allocations.end()) return 1;
    drain_all();
    written_before.erase(p);
    used -= found->second.second;
    found->second.first.free();
    allocations.erase(found);
    return 0;
}
API cuMemHostAlloc(void** p, size_t n, unsigned) {
    INSIDE;
    if (recording()) return 900;
    if (n > static_cast<size_t>(settings["host_memory"])) return 2;
    Guarded g(n);
    hosts.insert({g.at, g});
    return *p = g.at, 0;
}
// Waits for nothing.
API cuMemFreeHost(void* p) {
    INSIDE;
    if (recording()) return 900;
    auto found = hosts.find(p);
    if (found == hosts.end()) return 1;
    found->second.free();
    hosts.erase(found);
    return 0;
}
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* s) {
    INSIDE;
    return queue(s, [=] { memcpy(reinterpret_cast<void*>(to), from, n); });
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void* s) {
    INSIDE;
    return queue(s, [=] { memcpy(to, reinterpret_cast<void*>(from), n); });
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void* s) {
    INSIDE;
    return queue(s, [=] { memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n); });
}
API cuMemsetD8Async(uint64_t to, u8 byte, size_t n, void* s) {
    INSIDE;
    return queue(s, [=] { memset(reinterpret_cast<void*>(to), byte, n); });
}
API cuStreamCreate(void** s, unsigned) {
    INSIDE;
    Stream* stream = new Stream;
    queues.insert(stream->queue);
    return *s = stream, 0;
}
API cuStreamDestroy_v2(void* s) {
    INSIDE;
    Stream* stream = static_cast<Stream*>(s);
    if (stream->capture) return stream->capture->invalid = true, 900;
    return delete stream, 0;
}
API cuStreamSynchronize(void* s) {
    INSIDE;
    Stream* stream = static_cast<Stream*>(s);
    if (stream->capture) return stream->capture->invalid = true, 900;
    drain(*stream->queue, stream->queue->queued);
    return sticky ? sticky : static_cast<int>(settings["wait"]);
}
API cuStreamWaitEvent(void* s, void* e, unsigned) {
    INSIDE;
    Stream* stream = static_cast<Stream*>(s);
    const Event event = *static_cast<Event*>(e);
    if (event.capture && event.capture != stream->capture) {
        // The stream takes part in the recording from now on.
        if (stream->capture) return event.capture->invalid = true, 900;
        event.capture->streams.push_back(stream);
        stream->capture = event.capture;
    }
    if (event.capture || event.reached()) return 0;
    return queue(s, [=] { drain(*event.queue, event.count); });
}
API cuEventCreate(void** e, unsigned) { INSIDE; return *e = new Event, 0; }
API cuEventDestroy_v2(void* e) { INSIDE; return delete static_cast<Event*>(e), 0; }
API cuEventRecord(void* e, void* s) {
    INSIDE;
    const Stream* stream = static_cast<Stream*>(s);
    *static_cast<Event*>(e) = {stream->queue, stream->queue->queued, stream->capture};
    return 0;
}
// Work goes on between questions.
API cuEventQuery(void* e) {
    INSIDE;
    const Event* event = static_cast<Event*>(e);
    if (event->reached()) return 0;
    drain(*event->queue, event->count);
    return 600;
}
API cuEventSynchronize(void* e) {
    INSIDE;
    const Event* event = static_cast<Event*>(e);
    if (event->capture) return event->capture->invalid = true, 900;
    if (event->queue) drain(*event->queue, event->count);
    return sticky ? sticky : static_cast<int>(settings["wait"]);
}
API cuEventElapsedTime(float* ms, void* from, void* to) {
    INSIDE;
    if (!static_cast<Event*>(from)->reached() || !static_cast<Event*>(to)->reached()) return 600;
    return *ms = 0.5f, 0;
}
API cuModuleLoadData(void** m, const void* image) {
    INSIDE;
    if (recording()) return 900;
    if (settings["load"]) return static_cast<int>(settings["load"]);
    if (memcmp(image, "\177ELF", 4)) return 200;
    modules++;
    return *m = new Module, 0;
}
// Waits for nothing: kernels that are queued are lost. What stays is a few bytes, which say so.
API cuModuleUnload(void* m) {
    INSIDE;
    if (recording()) return 900;
    Module* module = static_cast<Module*>(m);
    if (!module->loaded) return 400;
    module->loaded = false;
    modules--;
    return 0;
}
API cuModuleGetFunction(void** f, void* m, const char* name) {
    INSIDE;
    Module* module = static_cast<Module*>(m);
    Kernel* k = find(name);
    if (!k) return 500;
    *f = &module->functions.insert({name, {k, module}}).first->second;
    return 0;
}
API cuFuncSetAttribute(void* f, int what, int value) {
    INSIDE;
    if (what != 8 || value > most_shared()) return 1;
    static_cast<Function*>(f)->max_shared = static_cast<u32>(value);
    return 0;
}
API cuLaunchKernelEx(const LaunchConfig* config, void* f, void** args, void**) {
    INSIDE;
    const auto [gx, gy, gz] = config->grid;
    const auto [bx, by, bz] = config->block;
    const unsigned shared_bytes = config->shared_bytes;
    void* s = config->stream;
    const Function* function = static_cast<Function*>(f);
    const Kernel* k = function->kernel;
    if (!function->module->loaded) return 400;
    if (settings["launch"]) return static_cast<int>(settings["launch"]);
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !bx || bx % 32 || by != 1 || bz != 1) return 1;
    if (bx > k->threads || shared_bytes > function->max_shared) return 701;
    // May it start before those before it are done? There are recordings of that since 12.3.
    const bool early = config->count == 1 && config->attributes->id == EARLY_START && config->attributes->value == 1;
    if (config->count != early) return 1;
    if (early && (settings["capability"] < 90 || settings["driver_version"] < 12030)) return 801;
    kernel_starts++;
    early_starts += early;
    const u8* first = static_cast<const u8*>(args[0]);
    std::vector<u8> copied(first, first + k->args);
    return queue(s, [=] { run(function, {gx, gy, gz}, bx, shared_bytes, copied, early); });
}
API cuStreamBeginCapture_v2(void* s, int) {
    INSIDE;
    Stream* stream = static_cast<Stream*>(s);
    if (stream->capture) return 900;
    stream->capture = new Graph;
    stream->capture->streams.push_back(stream);
    recordings.push_back(stream->capture);
    return 0;
}
API cuStreamEndCapture(void* s, void** g) {
    INSIDE;
    Graph* graph = static_cast<Stream*>(s)->capture;
    for (Stream* stream : graph->streams) stream->capture = nullptr;
    for (auto at = recordings.begin(); at != recordings.end(); ++at)
        if (*at == graph) { recordings.erase(at); break; }
    *g = graph->invalid ? nullptr : graph;
    return graph->invalid ? 901 : 0;
}
API cuGraphInstantiateWithFlags(void** exec, void* g, unsigned long long) { INSIDE; return *exec = new Graph(*static_cast<Graph*>(g)), 0; }
API cuGraphDestroy(void* g) { INSIDE; return delete static_cast<Graph*>(g), 0; }
API cuGraphExecDestroy(void* g) { INSIDE; return delete static_cast<Graph*>(g), 0; }
API cuGraphLaunch(void* g, void* s) {
    INSIDE;
    graph_starts++;
    // What has been started is done even if the graph is destroyed.
    for (const auto& work : static_cast<Graph*>(g)->work)
        if (int code = queue(s, work)) return code;
    return queue(s, [] { graph_ends++; });
}
