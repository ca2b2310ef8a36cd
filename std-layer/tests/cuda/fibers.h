// What runs a block of a kernel on the CPU.
#pragma once

namespace emu {
// The kernel, its arguments, and what it did that hardware leaves undefined, if it did.
extern const Kernel* running;
extern const void* arguments;
extern const char* failure;

// Blocks that have begun so far.
extern u64 blocks;

// What this thread has written to shared memory can be read by asynchronous instructions, also from behind a barrier.
void make_visible();
// Whether somebody has written these 16 bytes, and made them visible.
bool is_visible(const void* p);

// Whether this thread has waited for the kernels before its own; and whether it has to, as kernels may start before those are done.
bool has_waited();
extern bool has_to_wait;

// Runs all threads of the block `now`, from the last one to the first one if it should.
void run_block(bool descending);
}  // namespace emu
