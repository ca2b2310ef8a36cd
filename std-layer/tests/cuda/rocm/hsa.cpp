// An HSA runtime without a GPU: AQL packets are taken apart and checked, and their kernels run on the emulated driver. Packets are done when
// somebody waits for a signal and not before; with the setting `at_once` when the doorbell rings.
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "launch.h"

namespace emu { extern bool has_to_wait; }

typedef uint64_t Id;
typedef uint32_t u32;
#define API extern "C" __attribute__((visibility("default")))
#define LOCKED std::lock_guard<std::recursive_mutex> guard(lock); Inside inside

// The emulated driver, and its settings.
extern "C" {
int cuInit(unsigned);
int cuDeviceGetCount(int*);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxPushCurrent_v2(void*);
int cuCtxPopCurrent_v2(void**);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemFree_v2(uint64_t);
int cuMemHostAlloc(void**, size_t, unsigned);
int cuMemFreeHost(void*);
int cuDeviceTotalMem_v2(size_t*, int);
int cuStreamCreate(void**, unsigned);
int cuStreamSynchronize(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleUnload(void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuFuncSetAttribute(void*, int, int);
int emu_args(const char*);
int emu_get(const char*);
}

namespace {
enum Status { SUCCESS = 0, INVALID_ARGUMENT = 0x1001, OUT_OF_RESOURCES = 0x1008, INVALID_CODE_OBJECT = 0x1010, INVALID_SYMBOL = 0x1013, EXCEPTION = 0x1016, INVALID_PACKET = 0x1009 };
enum : Id { CPU = 1, GPU = 2, HOST_POOL = 10, ARGUMENT_POOL = 11, LOCAL_POOL = 20, GROUP_POOL = 21 };

std::recursive_mutex lock;
struct Inside {
    Inside() { void* c; cuDevicePrimaryCtxRetain(&c, 0); cuCtxPushCurrent_v2(c); }
    ~Inside() { void* c; cuCtxPopCurrent_v2(&c); }
};

struct Queue {
    u32 kind = 0, features = 1;
    void* packets = nullptr;
    Id doorbell = 0;
    u32 size = 0, reserved = 0;
    uint64_t id = 0;
    // From here on it is ours.
    void (*on_error)(int, Queue*, void*) = nullptr;
    void* data = nullptr;
    uint64_t write = 0, read = 0;
    int64_t rung = -1;
    bool failed = false, times = false;
    void* stream = nullptr;
};
// `ended` is when the last packet with this signal was done, on a queue that keeps times, else 0.
struct Signal { int64_t value; Queue* queue; uint64_t ended = 0; };
struct Kernel { std::string name; void* function; int arguments; };
struct Executable { void* module = nullptr; std::map<std::string, Kernel> kernels; };
struct Reader { const uint8_t* image; size_t bytes; };

std::set<Queue*> queues;
std::map<uint64_t, size_t> arguments;
// What `hsa_kernel_dispatch_packet_t` and `hsa_barrier_and_packet_t` have.
struct Dispatch { uint16_t header, setup, threads[3], reserved; u32 grid[3], private_bytes, group_bytes; uint64_t object, arguments, reserved2; Id completion; };
struct Barrier { uint16_t header, reserved[3]; Id signals[5]; uint64_t reserved2; Id completion; };
static_assert(sizeof(Dispatch) == 64 && sizeof(Barrier) == 64, "packets");

Signal* signal_of(Id id) { return reinterpret_cast<Signal*>(id); }
// A tick is a nanosecond.
uint64_t now() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return static_cast<uint64_t>(t.tv_sec) * 1000000000 + static_cast<uint64_t>(t.tv_nsec); }
void complete(const Queue* q, Id id) {
    if (!id) return;
    signal_of(id)->value--;
    signal_of(id)->ended = q->times ? now() : 0;
}
void fail(Queue* q, int status, const char* what) {
    if (what) fprintf(stderr, "a queue fails: %s\n", what);
    q->failed = true;
    q->on_error(status, q, q->data);
}

// Whether the argument lies in memory for arguments.
bool in_arguments(uint64_t from, size_t bytes) {
    auto found = arguments.upper_bound(from);
    if (found == arguments.begin()) return false;
    --found;
    return from + bytes <= found->first + found->second;
}

const char* launch(Queue* q, const Dispatch& p) {
    if (p.setup != 3 || p.reserved || p.reserved2) return "reserved fields, or dimensions";
    if (!p.threads[0] || p.threads[1] != 1 || p.threads[2] != 1 || p.grid[0] % p.threads[0] || !p.grid[0] || !p.grid[1] || !p.grid[2]) return "the grid";
    if (!p.object) return "no kernel";
    const Kernel& k = *reinterpret_cast<const Kernel*>(p.object);
    if (p.arguments % 16 || !in_arguments(p.arguments, static_cast<size_t>(k.arguments))) return "the place of arguments";
    if (p.private_bytes || p.group_bytes > 65536) return "private or group memory";
    void* args[] = {reinterpret_cast<void*>(p.arguments)};
    cuFuncSetAttribute(k.function, 8, static_cast<int>(p.group_bytes));
    const LaunchConfig config = {{p.grid[0] / p.threads[0], p.grid[1], p.grid[2]}, {p.threads[0], 1, 1}, p.group_bytes, q->stream, nullptr, 0};
    int code = cuLaunchKernelEx(&config, k.function, args, nullptr);
    if (code == 0) code = cuStreamSynchronize(q->stream);
    if (code) fprintf(stderr, "kernel %s: code %d\n", k.name.c_str(), code);
    return code ? "a kernel" : nullptr;
}

// Does the next packet; false if there is none that can be done.
bool step(Queue* q) {
    if (q->failed || static_cast<int64_t>(q->read) > q->rung) return false;
    uint8_t* place = static_cast<uint8_t*>(q->packets) + q->read % q->size * 64;
    Dispatch p;
    memcpy(&p, place, 64);
    const int kind = p.header & 255;
    // Work is in order, and sees what was written before it.
    if (!(p.header & 256) || !(p.header >> 9 & 3) || !(p.header >> 11 & 3)) return fail(q, INVALID_PACKET, "the header"), false;
    Id completion = p.completion;
    if (kind == 2) {
        if (const char* what = launch(q, p)) return fail(q, EXCEPTION, what), false;
    } else if (kind == 3) {
        Barrier b;
        memcpy(&b, place, 64);
        for (Id s : b.signals)
            if (s && signal_of(s)->value != 0) return false;
        // Whoever waits on the host wants to see what the GPU wrote.
        if ((b.header >> 11 & 3) != 2) return fail(q, INVALID_PACKET, "the scope of a barrier"), false;
        completion = b.completion;
    } else {
        return fail(q, INVALID_PACKET, "the type of a packet"), false;
    }
    const uint16_t invalid = 1;
    memcpy(place, &invalid, 2);
    q->read++;
    complete(q, completion);
    return true;
}
void run_all() {
    for (bool more = true; more;) {
        more = false;
        for (Queue* q : queues) while (step(q)) more = true;
    }
}
int status_of(int code) { return code == 0 ? SUCCESS : code == 2 ? OUT_OF_RESOURCES : code == 200 ? INVALID_CODE_OBJECT : INVALID_ARGUMENT; }
// The flags of files for the GPU, by its number.
int machine() {
    static const std::map<int, int> all = {{0x90a, 0x3f}, {0x942, 0x4c}, {0x1030, 0x36}, {0x1031, 0x37}, {0x1032, 0x38}, {0x1033, 0x39}, {0x1034, 0x3e},
                                           {0x1035, 0x3d}, {0x1036, 0x45}, {0x1100, 0x41}, {0x1101, 0x46}, {0x1102, 0x47}, {0x1103, 0x44}, {0x1200, 0x48}, {0x1201, 0x4e}};
    auto found = all.find(emu_get("gfx"));
    return found == all.end() ? 0 : found->second;
}
}  // namespace

API int hsa_init() {
    // Kernels start when those before them are done.
    emu::has_to_wait = false;
    int n;
    return cuInit(0) || cuDeviceGetCount(&n) ? OUT_OF_RESOURCES : SUCCESS;
}
API int hsa_status_string(int status, const char** text) {
    static const std::map<int, const char*> all = {{INVALID_ARGUMENT, "HSA_STATUS_ERROR_INVALID_ARGUMENT"}, {INVALID_CODE_OBJECT, "HSA_STATUS_ERROR_INVALID_CODE_OBJECT"}, {INVALID_SYMBOL, "HSA_STATUS_ERROR_INVALID_SYMBOL_NAME"}};
    auto found = all.find(status);
    if (found == all.end()) return INVALID_ARGUMENT;
    return *text = found->second, SUCCESS;
}
API int hsa_system_get_info(u32 what, void* to) { return what == 3 ? *static_cast<uint64_t*>(to) = 1000000000, SUCCESS : INVALID_ARGUMENT; }
API int hsa_amd_profiling_set_profiler_enabled(Queue* q, int on) { q->times = on; return SUCCESS; }
API int hsa_amd_profiling_get_dispatch_time(Id agent, Id s, uint64_t (*to)[2]) {
    LOCKED;
    if (agent != GPU || !signal_of(s)->ended) return INVALID_ARGUMENT;
    return (*to)[0] = (*to)[1] = signal_of(s)->ended, SUCCESS;
}
API int hsa_iterate_agents(int (*each)(Id, void*), void* data) { each(CPU, data); return each(GPU, data); }
API int hsa_agent_get_info(Id agent, u32 what, void* to) {
    switch (what) {
    case 0: snprintf(static_cast<char*>(to), 64, "gfx%x", emu_get("gfx")); return SUCCESS;
    case 17: *static_cast<u32*>(to) = agent == GPU; return SUCCESS;
    case 18: memcpy(to, (const u32[4]){32 << 10, 1 << 20, 0, 0}, 16); return SUCCESS;
    case 0xa002: *static_cast<u32*>(to) = 4; return SUCCESS;
    case 0xa009: strcpy(static_cast<char*>(to), "emulated GPU"); return SUCCESS;
    default: return INVALID_ARGUMENT;
    }
}
API int hsa_amd_agent_iterate_memory_pools(Id agent, int (*each)(Id, void*), void* data) {
    const bool gpu = agent == GPU;
    each(gpu ? GROUP_POOL : HOST_POOL, data);
    return each(gpu ? LOCAL_POOL : ARGUMENT_POOL, data);
}
API int hsa_amd_memory_pool_get_info(Id pool, u32 what, void* to) {
    size_t memory;
    cuDeviceTotalMem_v2(&memory, 0);
    switch (what) {
    case 0: *static_cast<u32*>(to) = pool == GROUP_POOL ? 3 : 0; return SUCCESS;
    case 1: *static_cast<u32*>(to) = pool == LOCAL_POOL ? 4 : pool == ARGUMENT_POOL ? 3 : 2; return SUCCESS;
    case 2: *static_cast<size_t*>(to) = pool == GROUP_POOL ? 65536 : memory; return SUCCESS;
    default: return INVALID_ARGUMENT;
    }
}
API int hsa_amd_memory_pool_allocate(Id pool, size_t n, u32, void** to) {
    LOCKED;
    uint64_t at = 0;
    if (pool == LOCAL_POOL) {
        int code = cuMemAlloc_v2(&at, n);
        *to = reinterpret_cast<void*>(at);
        return status_of(code);
    }
    int code = cuMemHostAlloc(to, n, 0);
    if (!code && pool == ARGUMENT_POOL) arguments[reinterpret_cast<uint64_t>(*to)] = n;
    return status_of(code);
}
API int hsa_amd_memory_pool_free(void* p) {
    LOCKED;
    arguments.erase(reinterpret_cast<uint64_t>(p));
    return cuMemFreeHost(p) ? status_of(cuMemFree_v2(reinterpret_cast<uint64_t>(p))) : SUCCESS;
}
API int hsa_amd_agents_allow_access(u32 n, const Id* agents, const u32*, const void*) { return n == 1 && *agents == GPU ? SUCCESS : INVALID_ARGUMENT; }
API int hsa_memory_copy(void* to, const void* from, size_t n) { memcpy(to, from, n); return SUCCESS; }
API int hsa_signal_create(int64_t value, u32, const Id*, Id* s) { return *s = reinterpret_cast<Id>(new Signal{value, nullptr}), SUCCESS; }
API int hsa_signal_destroy(Id s) { return delete signal_of(s), SUCCESS; }
API void hsa_signal_store_screlease(Id s, int64_t value) {
    LOCKED;
    Signal* signal = signal_of(s);
    signal->value = value;
    if (signal->queue) signal->queue->rung = value;
    if (signal->queue && emu_get("at_once")) run_all();
}
API int64_t hsa_signal_load_scacquire(Id s) { LOCKED; int64_t v = signal_of(s)->value; run_all(); return v; }
API int64_t hsa_signal_wait_scacquire(Id s, u32, int64_t, uint64_t, u32) { LOCKED; run_all(); return signal_of(s)->value; }
API int hsa_queue_create(Id, u32 size, u32, void (*on_error)(int, Queue*, void*), void* data, u32, u32, Queue** to) {
    LOCKED;
    Queue* q = new Queue;
    q->size = size, q->on_error = on_error, q->data = data;
    q->packets = new uint8_t[size * 64];
    for (u32 i = 0; i < size; i++) static_cast<uint8_t*>(q->packets)[i * 64] = 1;
    q->doorbell = reinterpret_cast<Id>(new Signal{-1, q});
    cuStreamCreate(&q->stream, 1);
    queues.insert(q);
    return *to = q, SUCCESS;
}
API int hsa_queue_destroy(Queue* q) {
    LOCKED;
    queues.erase(q);
    delete signal_of(q->doorbell);
    delete[] static_cast<uint8_t*>(q->packets);
    return delete q, SUCCESS;
}
API uint64_t hsa_queue_add_write_index_relaxed(Queue* q, uint64_t n) { LOCKED; q->write += n; return q->write - n; }
// A full queue gets room while somebody looks.
API uint64_t hsa_queue_load_read_index_scacquire(Queue* q) { LOCKED; if (q->write - q->read > q->size) step(q); return q->read; }
API int hsa_code_object_reader_create_from_memory(const void* image, size_t n, Id* r) { return *r = reinterpret_cast<Id>(new Reader{static_cast<const uint8_t*>(image), n}), SUCCESS; }
API int hsa_code_object_reader_destroy(Id r) { return delete reinterpret_cast<Reader*>(r), SUCCESS; }
API int hsa_executable_create_alt(u32, u32, const char*, Id* e) { return *e = reinterpret_cast<Id>(new Executable), SUCCESS; }
API int hsa_executable_load_agent_code_object(Id e, Id agent, Id r, const char*, Id*) {
    LOCKED;
    const Reader* reader = reinterpret_cast<Reader*>(r);
    // An ELF file for AMD GPUs, and for this one.
    if (agent != GPU || reader->bytes < 64 || reader->image[18] != 224 || reader->image[48] != machine()) return INVALID_CODE_OBJECT;
    return status_of(cuModuleLoadData(&reinterpret_cast<Executable*>(e)->module, reader->image));
}
API int hsa_executable_freeze(Id, const char*) { return SUCCESS; }
API int hsa_executable_destroy(Id e) {
    LOCKED;
    Executable* executable = reinterpret_cast<Executable*>(e);
    if (executable->module) cuModuleUnload(executable->module);
    return delete executable, SUCCESS;
}
API int hsa_executable_get_symbol_by_name(Id e, const char* name, const Id*, Id* symbol) {
    LOCKED;
    Executable* executable = reinterpret_cast<Executable*>(e);
    std::string plain = name;
    if (plain.size() < 3 || plain.substr(plain.size() - 3) != ".kd") return INVALID_SYMBOL;
    plain.resize(plain.size() - 3);
    void* function;
    if (cuModuleGetFunction(&function, executable->module, plain.c_str())) return INVALID_SYMBOL;
    *symbol = reinterpret_cast<Id>(&executable->kernels.insert({plain, {plain, function, emu_args(plain.c_str())}}).first->second);
    return SUCCESS;
}
API int hsa_executable_symbol_get_info(Id symbol, u32 what, void* to) {
    const Kernel* k = reinterpret_cast<const Kernel*>(symbol);
    if (what == 22) return *static_cast<uint64_t*>(to) = symbol, SUCCESS;
    *static_cast<u32*>(to) = what == 11 ? static_cast<u32>(k->arguments) : 0;
    return SUCCESS;
}
