// A CUDA driver without a GPU: memory is the host's between guard pages, streams do their work at once, kernels run
// on the CPU, one thread at a time. Threads go in ascending order in every other launch and in descending order in those
// between, so that results which depend on it differ. What hardware leaves undefined fails.
#include <csignal>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <sys/mman.h>

#include "simt.cuh"

namespace emu {

Block now;
u32 current;

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

// --- Threads -------------------------------------------------------------------------------------------

static constexpr u32 MOST = 1024;
static constexpr size_t STACK = 256 << 10, PAGE = 4096;

struct Copy { void* to; const void* from; u32 group; };
struct Fiber {
    void* sp;
    u8* stack;
    enum { READY, WARP_WAIT, BLOCK_WAIT, DONE } state;
    u32 generation, phase;
    std::vector<Copy> copies;
    u32 group;
};
struct Warp { u32 generation, arrived; int kind; u32 words[2][32]; };

static Fiber fibers[MOST];
static Warp warps[MOST / 32];
static u32 block_generation, block_arrived;
static void* scheduler;
static const Kernel* running;
static const void* arguments;
static const char* failure;

// Saves the registers that calls keep, and goes on with another stack.
extern "C" void emu_switch(void** save, void* to);
asm(R"(
.text
.globl emu_switch
.hidden emu_switch
.type emu_switch, @function
emu_switch:
    push %rbp; push %rbx; push %r12; push %r13; push %r14; push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15; pop %r14; pop %r13; pop %r12; pop %rbx; pop %rbp
    ret
)");

static void leave() { emu_switch(&fibers[current].sp, scheduler); }
static void body() {
    running->run(arguments);
    fibers[current].state = Fiber::DONE;
    leave();
    abort();
}

void fail(const char* what) {
    if (!failure) failure = what;
    fibers[current].state = Fiber::DONE;
    leave();
    abort();
}

void aligned(const void* p, size_t to) {
    if (reinterpret_cast<uintptr_t>(p) % to) fail("a misaligned address");
}

void barrier() {
    Fiber& f = fibers[current];
    f.state = Fiber::BLOCK_WAIT;
    f.generation = block_generation;
    if (++block_arrived == now.threads) block_arrived = 0, block_generation++;
    leave();
}

void warp_barrier(int kind) {
    Fiber& f = fibers[current];
    Warp& w = warps[current / 32];
    if (w.arrived && w.kind != kind) fail("threads of a warp at different barriers");
    w.kind = kind;
    f.state = Fiber::WARP_WAIT;
    f.generation = w.generation;
    if (++w.arrived == 32) w.arrived = 0, w.generation++;
    leave();
}

const u32* exchange(u32 mine) {
    Fiber& f = fibers[current];
    u32 phase = f.phase;
    f.phase ^= 1;
    u32* words = warps[current / 32].words[phase];
    words[current % 32] = mine;
    warp_barrier(2);
    return words;
}

static bool can_go(u32 t) {
    const Fiber& f = fibers[t];
    return f.state == Fiber::READY || (f.state == Fiber::WARP_WAIT && f.generation != warps[t / 32].generation) ||
           (f.state == Fiber::BLOCK_WAIT && f.generation != block_generation);
}

static void start(u32 t) {
    Fiber& f = fibers[t];
    if (!f.stack) f.stack = static_cast<u8*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // Six registers and where `body` starts; the stack is aligned as behind a call.
    void** sp = reinterpret_cast<void**>(f.stack + STACK) - 1;
    *--sp = reinterpret_cast<void*>(body);
    sp -= 6;
    f.sp = sp;
    f.state = Fiber::READY;
    f.phase = f.group = 0;
    f.copies.clear();
}

static void run_block(bool descending) {
    memset(warps, 0, sizeof warps);
    block_generation = block_arrived = 0;
    for (u32 t = 0; t < now.threads; t++) start(t);
    for (u32 left = now.threads; left > 0 && !failure;) {
        bool progress = false;
        for (u32 i = 0; i < now.threads; i++) {
            u32 t = descending ? now.threads - 1 - i : i;
            // A warp at a time, until it cannot go on: its lanes meet often, warps seldom.
            if (!can_go(t)) continue;
            current = t;
            emu_switch(&scheduler, fibers[t].sp);
            progress = true;
            if (fibers[t].state == Fiber::DONE) left--;
            if (failure) return;
        }
        if (!progress) failure = "threads wait for others that have ended or wait elsewhere";
    }
}

// --- Memory --------------------------------------------------------------------------------------------

// Ends at a page that cannot be touched, as does the page before its first; all bytes 0xff, NaN in every type.
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
};

static struct sigaction before;
static void on_fault(int signal, siginfo_t* info, void*) {
    if (running) {
        fprintf(stderr, "kernel %s touches %p, which is in no buffer: block %u %u %u, thread %u\n", running->name, info->si_addr,
                now.block[0], now.block[1], now.block[2], current);
        _Exit(99);
    }
    sigaction(signal, &before, nullptr);
}

// --- The driver's state ----------------------------------------------------------------------------------

static std::recursive_mutex lock;
static std::map<std::string, long> settings = {
    {"driver_version", 13000}, {"device_count", 1}, {"capability", 90}, {"memory", 1L << 32}, {"init", 0}, {"launch", 0}, {"wait", 0},
    {"load", 0}, {"host_memory", 1L << 32},
};
static std::map<uintptr_t, std::pair<Guarded, size_t>> allocations;
static size_t used;
static std::set<std::string> launched;
static u32 launches;
static int sticky;
bool by_shuffles() { return launches % 8 == 3; }

// Streams that this thread is recording: it must neither allocate nor load then.
static thread_local int recording;
struct Graph { std::vector<std::function<int()>> work; };
struct Stream { Graph* capture = nullptr; };
struct Function { Kernel* kernel; u32 max_shared = 48 << 10; };
static std::map<std::string, Function> functions;

static int run(const Kernel* k, const u32 (&grid)[3], u32 threads, u32 shared_bytes, const std::vector<u8>& args) {
    static bool handling;
    if (!handling) {
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO;
        sigaction(SIGSEGV, &action, &before);
        handling = true;
    }
    launched.insert(k->name);
    Guarded room(shared_bytes);
    running = k;
    arguments = args.data();
    failure = nullptr;
    now.threads = threads;
    now.shared = room.at;
    now.shared_bytes = shared_bytes;
    memcpy(now.grid, grid, sizeof grid);
    bool descending = launches++ % 2;
    for (u32 z = 0; z < grid[2]; z++)
        for (u32 y = 0; y < grid[1]; y++)
            for (u32 x = 0; x < grid[0] && !failure; x++) {
                now.block[0] = x, now.block[1] = y, now.block[2] = z;
                memset(room.at, 0xff, shared_bytes);
                run_block(descending);
            }
    if (failure) {
        fprintf(stderr, "kernel %s: %s (block %u %u %u, thread %u)\n", k->name, failure, now.block[0], now.block[1], now.block[2], current);
        sticky = 719;
    }
    running = nullptr;
    room.free();
    return 0;
}

static int queue(Stream* s, std::function<int()> work) {
    if (sticky) return sticky;
    if (!s->capture) return work();
    s->capture->work.push_back(std::move(work));
    return 0;
}
}  // namespace emu

// Moves bytes no earlier than they are waited for.
void copy_async(void* to, const void* from) {
    emu::aligned(to, 16);
    emu::aligned(from, 16);
    emu::Fiber& f = emu::fibers[emu::current];
    f.copies.push_back({to, from, f.group});
    memset(to, 0xff, 16);
}
void copy_commit() { emu::fibers[emu::current].group++; }
void emu_copy_wait(u32 n) {
    emu::Fiber& f = emu::fibers[emu::current];
    std::vector<emu::Copy> left;
    for (const emu::Copy& c : f.copies)
        if (c.group + n < f.group) memcpy(c.to, c.from, 16);
        else left.push_back(c);
    f.copies = left;
}

// --- The Driver API ------------------------------------------------------------------------------------------

using namespace emu;
#define API extern "C" __attribute__((visibility("default"))) int
#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock)

API emu_set(const char* key, long value) { LOCKED; settings.at(key) = value; return 0; }
// Whether a kernel has been launched since the last question.
API emu_launched(const char* name) { LOCKED; return launched.erase(name) > 0; }
// Bytes of a kernel's arguments, or -1.
API emu_args(const char* name) { Kernel* k = find(name); return k ? static_cast<int>(k->args) : -1; }
// Allocations that exist.
API emu_allocations(const char*) { LOCKED; return static_cast<int>(allocations.size()); }

API cuInit(unsigned) { return static_cast<int>(settings["init"]); }
API cuDriverGetVersion(int* v) { *v = static_cast<int>(settings["driver_version"]); return 0; }
API cuGetErrorName(int code, const char** name) {
    static const std::map<int, const char*> names = {
        {1, "CUDA_ERROR_INVALID_VALUE"}, {2, "CUDA_ERROR_OUT_OF_MEMORY"}, {100, "CUDA_ERROR_NO_DEVICE"}, {200, "CUDA_ERROR_INVALID_IMAGE"},
        {500, "CUDA_ERROR_NOT_FOUND"}, {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"}, {719, "CUDA_ERROR_LAUNCH_FAILED"},
        {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}, {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"}, {999, "CUDA_ERROR_UNKNOWN"},
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
    case 97: *v = 99 << 10; break;
    default: return 1;
    }
    return 0;
}
API cuDevicePrimaryCtxRetain(void** c, int) { *c = &settings; return 0; }
API cuDevicePrimaryCtxRelease_v2(int) { return 0; }
API cuCtxSetCurrent(void* c) { return c == &settings ? 0 : 201; }
API cuCtxSynchronize() { LOCKED; return sticky ? sticky : static_cast<int>(settings["wait"]); }
API cuMemGetInfo_v2(size_t* free, size_t* total) {
    LOCKED;
    *total = static_cast<size_t>(settings["memory"]);
    *free = *total - used;
    return 0;
}
API cuMemAlloc_v2(uint64_t* p, size_t n) {
    LOCKED;
    if (recording) return 900;
    if (n == 0) return 1;
    if (n > static_cast<size_t>(settings["memory"]) - used) return 2;
    Guarded g(n);
    used += n;
    *p = reinterpret_cast<uintptr_t>(g.at);
    allocations.insert({*p, {g, n}});
    return 0;
}
API cuMemFree_v2(uint64_t p) {
    LOCKED;
    auto found = allocations.find(p);
    if (found == allocations.end()) return 1;
    used -= found->second.second;
    found->second.first.free();
    allocations.erase(found);
    return 0;
}
API cuMemHostAlloc(void** p, size_t n, unsigned) {
    LOCKED;
    if (n > static_cast<size_t>(settings["host_memory"])) return 2;
    return *p = malloc(n), 0;
}
API cuMemFreeHost(void* p) { return free(p), 0; }
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t n, void* s) {
    LOCKED;
    return queue(static_cast<Stream*>(s), [=] { return memcpy(reinterpret_cast<void*>(to), from, n), 0; });
}
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t n, void* s) {
    LOCKED;
    return queue(static_cast<Stream*>(s), [=] { return memcpy(to, reinterpret_cast<void*>(from), n), 0; });
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t n, void* s) {
    LOCKED;
    return queue(static_cast<Stream*>(s), [=] { return memcpy(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), n), 0; });
}
API cuMemsetD8Async(uint64_t to, u8 byte, size_t n, void* s) {
    LOCKED;
    return queue(static_cast<Stream*>(s), [=] { return memset(reinterpret_cast<void*>(to), byte, n), 0; });
}
API cuStreamCreate(void** s, unsigned) { return *s = new Stream, 0; }
API cuStreamDestroy_v2(void* s) { return delete static_cast<Stream*>(s), 0; }
API cuStreamSynchronize(void* s) {
    LOCKED;
    if (static_cast<Stream*>(s)->capture) return 900;
    return sticky ? sticky : static_cast<int>(settings["wait"]);
}
API cuStreamWaitEvent(void*, void*, unsigned) { return 0; }
API cuEventCreate(void** e, unsigned) { return *e = new int, 0; }
API cuEventDestroy_v2(void* e) { return delete static_cast<int*>(e), 0; }
API cuEventRecord(void*, void*) { return 0; }
API cuEventQuery(void*) { return 0; }
API cuEventSynchronize(void*) { return 0; }
API cuEventElapsedTime(float* ms, void*, void*) { return *ms = 0.5f, 0; }
API cuModuleLoadData(void** m, const void* image) {
    if (recording) return 900;
    if (settings["load"]) return static_cast<int>(settings["load"]);
    if (memcmp(image, "\177ELF", 4)) return 200;
    *m = &functions;
    return 0;
}
API cuModuleUnload(void*) { return 0; }
API cuModuleGetFunction(void** f, void*, const char* name) {
    LOCKED;
    Kernel* k = find(name);
    if (!k) return 500;
    *f = &functions.insert({name, {k}}).first->second;
    return 0;
}
API cuFuncSetAttribute(void* f, int what, int value) {
    if (what != 8 || value > 99 << 10) return 1;
    static_cast<Function*>(f)->max_shared = static_cast<u32>(value);
    return 0;
}
API cuLaunchKernel(void* f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes, void* s,
                   void** args, void**) {
    LOCKED;
    const Function* function = static_cast<Function*>(f);
    const Kernel* k = function->kernel;
    if (settings["launch"]) return static_cast<int>(settings["launch"]);
    if (!gx || !gy || !gz || gy > 65535 || gz > 65535 || !bx || bx % 32 || by != 1 || bz != 1) return 1;
    if (bx > k->threads || shared_bytes > function->max_shared) return 701;
    const u8* first = static_cast<const u8*>(args[0]);
    std::vector<u8> copied(first, first + k->args);
    return queue(static_cast<Stream*>(s), [=] { return run(k, {gx, gy, gz}, bx, shared_bytes, copied); });
}
API cuStreamBeginCapture_v2(void* s, int) {
    LOCKED;
    static_cast<Stream*>(s)->capture = new Graph;
    recording++;
    return 0;
}
API cuStreamEndCapture(void* s, void** g) {
    LOCKED;
    Stream* stream = static_cast<Stream*>(s);
    *g = stream->capture;
    stream->capture = nullptr;
    recording--;
    return 0;
}
API cuGraphInstantiateWithFlags(void** exec, void* g, unsigned long long) { return *exec = new Graph(*static_cast<Graph*>(g)), 0; }
API cuGraphDestroy(void* g) { return delete static_cast<Graph*>(g), 0; }
API cuGraphExecDestroy(void* g) { return delete static_cast<Graph*>(g), 0; }
API cuGraphLaunch(void* g, void*) {
    LOCKED;
    for (auto& work : static_cast<Graph*>(g)->work)
        if (int code = work()) return code;
    return sticky ? sticky : 0;
}
