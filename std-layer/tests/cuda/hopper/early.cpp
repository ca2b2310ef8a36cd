// A kernel that starts before the one before it is done, and what can be wrong with one: with the setting `strict` the emulator has to notice each mistake.
#include "simt.cuh"

#include "launch.h"

struct EarlyArgs { const f32* weights; const f32* x; f32* y; u32 mistake; };
enum Mistake : u32 { NONE, READS, WRITES, NEVER_WAITS };

KERNEL(early_before, EarlyArgs, 32) { a.y[thread()] = a.x[thread()] + 1; }

KERNEL_EARLY(early_behind, EarlyArgs, 32) {
    f32 v = a.weights[thread()];
    if (a.mistake == READS) v += a.x[thread()];
    if (a.mistake == WRITES) a.y[thread()] = v;
    if (a.mistake == NEVER_WAITS && thread() == 7) return;
    wait_for_inputs();
    a.y[thread()] = v + a.x[thread()];
}

extern "C" {
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxPushCurrent_v2(void*);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemsetD8Async(uint64_t, u8, size_t, void*);
int cuStreamCreate(void**, unsigned);
int cuStreamSynchronize(void*);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
}

// The result code of such a kernel with that mistake, or -1 if it gives something else than it should.
extern "C" __attribute__((visibility("default"))) int emu_early(const char* mistake) {
    void *context, *stream, *module, *before, *behind;
    uint64_t memory[4];
    cuDevicePrimaryCtxRetain(&context, 0), cuCtxPushCurrent_v2(context);
    cuStreamCreate(&stream, 0), cuModuleLoadData(&module, "\177ELF");
    cuModuleGetFunction(&before, module, "early_before"), cuModuleGetFunction(&behind, module, "early_behind");
    for (uint64_t& at : memory) cuMemAlloc_v2(&at, 128), cuMemsetD8Async(at, 0, 128, stream);
    f32* at[4];
    for (u32 i = 0; i < 4; i++) at[i] = reinterpret_cast<f32*>(memory[i]);
    EarlyArgs first = {at[0], at[0], at[1], 0}, second = {at[2], at[1], at[3], static_cast<u32>(atoi(mistake))};
    LaunchAttribute early = {EARLY_START, 0, 1, {}};
    void *first_args[] = {&first}, *second_args[] = {&second};
    LaunchConfig config = {{1, 1, 1}, {32, 1, 1}, 0, stream, &early, 0};
    cuLaunchKernelEx(&config, before, first_args, nullptr);
    config.count = 1;
    cuLaunchKernelEx(&config, behind, second_args, nullptr);
    const int code = cuStreamSynchronize(stream);
    for (u32 i = 0; i < 32 && code == 0; i++)
        if (at[3][i] != 1) return -1;
    return code;
}
