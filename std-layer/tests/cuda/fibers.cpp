// Threads of a block are fibers: each runs until it waits for others at a barrier or exchange.

// Most of the time of tests is spent here, a few instructions at a time.
#pragma GCC optimize("O2")

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
u64 blocks;

static constexpr u32 MOST = 1024;
static constexpr size_t STACK = 256 << 10;

struct Copy { void* to; const void* from; u32 bytes, group; };
// What a switch needs of a thread.
struct Place {
    void* sp;
    // Counts how often those have met who are waited for, and what it was: the thread goes on when that changes.
    const u32* meetings;
    u32 generation;
    // Of exchanges of words.
    u32 phase;
};
struct Fiber {
    u8* stack;
    u32 wave_phase;
    std::vector<Copy> copies;
    u32 group;
    // How often it has made visible what it wrote.
    u32 visible;
    // Whether it has waited for the kernels before its own.
    bool waited;
};
// Of 16 bytes of shared memory: who wrote them last, plus 1, and how often that thread had made visible before what it wrote.
struct Written { u32 thread, visible; };
struct Warp { u32 generation, arrived; int kind; u32 words[2][32]; };
// Lanes that exchange words between warps, or more than one word.
struct Wave { Warp all; u32 words[2][64 * 16]; };

static Fiber fibers[MOST];
static Place places[MOST];
static Warp warps[MOST / 32];
static Wave waves[MOST / 32];
static std::vector<Written> written;
static u32 block_generation, block_arrived;
// What nobody changes: a thread that has not begun waits for a change that was, one that has ended for a change that never is.
static const u32 nobody = 1;
static const void* block_place;
static void* scheduler;
// Whether threads run from the last to the first, and how many have not ended.
static bool descending;
static u32 left_over;

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

static bool can_go(u32 t) { return places[t].generation != *places[t].meetings; }
static void wait_for(const u32& meetings) {
    places[current].meetings = &meetings;
    places[current].generation = meetings;
}
// The first thread behind `t`, in order and then from the beginning, of `count` ones from `first` on, that can go on, `t` being the last one to be asked.
static u32 next_of(u32 t, u32 first, u32 count) {
    for (u32 i = 0; i < count; i++) {
        if (descending) t = t == first ? first + count - 1 : t - 1;
        else t = t + 1 == first + count ? first : t + 1;
        if (can_go(t)) return t;
    }
    return now.threads;
}
// A warp goes on until it cannot: its lanes meet often, warps seldom. `now.threads` if no thread can go on.
static u32 next_thread() {
    const u32 neighbour = descending ? current - 1 : current + 1;
    if (neighbour / 32 == current / 32 && can_go(neighbour)) return neighbour;
    const u32 warp = current / 32 * 32, next = next_of(current, warp, 32);
    return next < now.threads ? next : next_of(current, 0, now.threads);
}

// Goes on with the next thread, or with `run_block` where none can. Threads switch to each other directly: they come here by the same calls, so the
// processor, which expects a call to return to where it came from, foresees where the next thread goes on.
static void leave() {
    const u32 last = current, next = next_thread();
    if (next == last) return;
    if (next < now.threads) current = next;
    emu_switch(&places[last].sp, next < now.threads ? places[next].sp : scheduler);
}
static void body() {
    running->run(arguments);
    if (!fibers[current].waited) fail("a thread that ends without having waited for the kernels before");
    wait_for(nobody);
    left_over--;
    leave();
    abort();
}

void fail(const char* what) {
    if (!failure) failure = what;
    emu_switch(&places[current].sp, scheduler);
    abort();
}

void wrote(const void* p) {
    const uintptr_t at = reinterpret_cast<uintptr_t>(p) - reinterpret_cast<uintptr_t>(now.shared);
    if (at < now.shared_bytes) written[at / 16] = {current + 1, fibers[current].visible};
}
void make_visible() { fibers[current].visible++; }
bool is_visible(const void* p) {
    const Written& w = written[static_cast<size_t>(static_cast<const u8*>(p) - now.shared) / 16];
    return w.thread && fibers[w.thread - 1].visible > w.visible;
}

void barrier() {
    // A wave of AMD's GPUs waits as a whole: its two warps must not wait at different places.
    const void* place = __builtin_return_address(0);
    if (block_arrived && place != block_place) fail("threads of a block at different barriers");
    block_place = place;
    wait_for(block_generation);
    if (++block_arrived == now.threads) block_arrived = 0, block_generation++;
    leave();
}

static void meet(Warp& w, u32 lanes, int kind) {
    if (w.arrived && w.kind != kind) fail("threads of a warp at different barriers");
    w.kind = kind;
    wait_for(w.generation);
    if (++w.arrived == lanes) w.arrived = 0, w.generation++;
    leave();
}
void warp_barrier(int kind) { meet(warps[current / 32], 32, kind); }

const u32* exchange(u32 mine) {
    const u32 phase = places[current].phase;
    places[current].phase ^= 1;
    u32* words = warps[current / 32].words[phase];
    words[current % 32] = mine;
    warp_barrier(2);
    return words;
}

const u32* exchange_wave(u32 lanes, const u32* mine, u32 n) {
    if (now.threads % lanes || lanes * n > 64 * 16) fail("a part of a wave, or too many words");
    Fiber& f = fibers[current];
    u32 phase = f.wave_phase;
    f.wave_phase ^= 1;
    Wave& wave = waves[current / lanes];
    memcpy(wave.words[phase] + current % lanes * n, mine, n * 4);
    meet(wave.all, lanes, 4);
    return wave.words[phase];
}

void multiply_tiles(f32 (&d)[4], const f32 (&mine)[12]) {
    const f32(*all)[12] = reinterpret_cast<const f32(*)[12]>(exchange_wave(32, reinterpret_cast<const u32*>(mine), 12));
    const u32 g = current % 32 / 4 * 4, t = current % 4 * 8;
    f32 sum[4] = {d[0], d[1], d[2], d[3]};
    for (u32 k = 0; k < 16; k++) {
        // Of both rows, of both columns.
        const f32* left = all[g + k % 8 / 2] + k / 8 * 4 + k % 2;
        const f32(*right)[12] = all + t + k % 8 / 2;
#pragma GCC unroll 4
        for (u32 i = 0; i < 4; i++) sum[i] += left[i / 2 * 2] * right[i % 2 * 4][8 + k / 8 * 2 + k % 2];
    }
    memcpy(d, sum, sizeof sum);
}

static void start(u32 t) {
    Fiber& f = fibers[t];
    if (!f.stack) f.stack = static_cast<u8*>(mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    // Six registers and where `body` starts; the stack is aligned as behind a call. Stacks begin at different places of a page, as lines of a cache are shared by
    // all that is at the same place.
    void** sp = reinterpret_cast<void**>(f.stack + STACK - t * 576 % 4096) - 1;
    *--sp = reinterpret_cast<void*>(body);
    sp -= 6;
    places[t] = {sp, &nobody, 0, 0};
    f.wave_phase = f.group = f.visible = 0;
    f.copies.clear();
    f.waited = !has_to_wait;
}

void run_block(bool from_last) {
    memset(warps, 0, sizeof warps);
    for (Wave& w : waves) w.all = {};
    written.assign(now.shared_bytes / 16 + 1, {0, 0});
    blocks++;
    block_generation = block_arrived = 0;
    descending = from_last;
    left_over = now.threads;
    for (u32 t = 0; t < now.threads; t++) start(t);
    current = descending ? now.threads - 1 : 0;
    emu_switch(&scheduler, places[current].sp);
    if (left_over && !failure) failure = "threads wait for others that have ended or wait elsewhere";
}
}  // namespace emu

bool emu::has_to_wait = true;
bool emu::has_waited() { return fibers[current].waited; }
void wait_for_inputs() { emu::fibers[emu::current].waited = true; }

// Moves bytes no earlier than they are waited for.
void copy_async(void* to, const void* from, u32 bytes) {
    emu::aligned(to, bytes);
    emu::aligned(from, bytes);
    emu::Fiber& f = emu::fibers[emu::current];
    f.copies.push_back({to, from, bytes, f.group});
    emu::wrote(to);
    memset(to, 0xff, bytes);
}
void copy_commit() { emu::fibers[emu::current].group++; }
void emu_copy_wait(u32 n) {
    emu::Fiber& f = emu::fibers[emu::current];
    size_t left = 0;
    for (const emu::Copy& c : f.copies)
        if (c.group + n < f.group) emu::wrote(c.to), memcpy(c.to, c.from, c.bytes);
        else f.copies[left++] = c;
    f.copies.resize(left);
}
