// What runs a block of a kernel on the CPU.
#pragma once

namespace emu {
// The kernel, its arguments, and what it did that hardware leaves undefined, if it did.
extern const Kernel* running;
extern const void* arguments;
extern const char* failure;

// Runs all threads of the block `now`, from the last one to the first one if it should.
void run_block(bool descending);
}  // namespace emu
