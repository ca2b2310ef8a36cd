// How the driver is told to launch a kernel.
#pragma once

struct LaunchAttribute { int id, pad, value, more[15]; };
struct LaunchConfig { unsigned grid[3], block[3], shared_bytes; void* stream; LaunchAttribute* attributes; unsigned count; };
// The attribute with which a kernel may start before those before it are done; its value is 1.
static constexpr int EARLY_START = 6;
extern "C" int cuLaunchKernelEx(const LaunchConfig*, void*, void**, void**);
