// Threads of a block are fibers: each runs until it waits for others at a barrier or exchange.
#include <vector>

#include <sys/mman.h>

#include "simt.cuh"

#include "fibers.h"

namespace emu {

Block now;
u32 current;
const Kernel* running;
const void* arguments;
const char* failure;

static constexpr u32 MOST = 1024;
static constexpr size_t STACK = 256 << 10;

struct Copy { void* to; const void* from; u32 group; };
struct Fiber {
    void* sp;
    u8* stack;
    enum { READY, WARP_WAIT, BLOCK_WAIT, DONE } state;
    u32 generation, phase, wave_phase;
    // Counts how often those have met who are waited for.
    const u32* meetings;
    std::vector<Copy> copies;
    u32 group;
};
struct Warp { u32 generation, arrived; int kind; u32 words[2][32]; };
// Lanes that exchange words between warps, or more than one word.
struct Wave { Warp all; u32 words[2][64 * 16]; };

static Fiber fibers[MOST];
static Warp warps[MOST / 32];
static Wave waves[MOST / 32];
static u32 block_generation, block_arrived;
static const void* block_place;
static void* scheduler;

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
    // A wave of AMD's GPUs waits as a whole: its two warps must not wait at different places.
    const void* place = __builtin_return_address(0);
    if (block_arrived && place != block_place) fail("threads of a block at different barriers");
    block_place = place;
    f.state = Fiber::BLOCK_WAIT;
    f.generation = block_generation;
    if (++block_arrived == now.threads) block_arrived = 0, block_generation++;
    leave();
}

static void meet(Warp& w, u32 lanes, int kind) {
    Fiber& f = fibers[current];
    if (w.arrived && w.kind != kind) fail("threads of a warp at different barriers");
    w.kind = kind;
    f.state = Fiber::WARP_WAIT;
    f.meetings = &w.generation;
    f.generation = w.generation;
    if (++w.arrived == lanes) w.arrived = 0, w.generation++;
    leave();
}
void warp_barrier(int kind) { meet(warps[current / 32], 32, kind); }

const u32* exchange(u32 mine) {
    Fiber& f = fibers[current];
    u32 phase = f.phase;
    f.phase ^= 1;
    u32* words = warps[current / 32].words[phase];
    words[current % 32] = mine;
    warp_barrier(2);
    return words;
}

const u32* exchange_wave(u32 lanes, const u32* mine, u32 n) {
    if (now.threads % lanes || n > 16) fail("a part of a wave, or too many words");
    Fiber& f = fibers[current];
    u32 phase = f.wave_phase;
    f.wave_phase ^= 1;
    Wave& wave = waves[current / lanes];
    memcpy(wave.words[phase] + current % lanes * n, mine, n * 4);
    meet(wave.all, lanes, 4);
    return wave.words[phase];
}

static bool can_go(u32 t) {
    const Fiber& f = fibers[t];
    return f.state == Fiber::READY || (f.state == Fiber::WARP_WAIT && f.generation != *f.meetings) ||
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
    f.phase = f.wave_phase = f.group = 0;
    f.copies.clear();
}

void run_block(bool descending) {
    memset(warps, 0, sizeof warps);
    for (Wave& w : waves) w.all = {};
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
