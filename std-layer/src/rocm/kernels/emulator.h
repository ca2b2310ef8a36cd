// simt.cuh includes a file of this name where the compiler is not NVIDIA's; for AMD GPUs it is this one.
#include "amd.h"
