// The emulator as GPUs of the family gfx10, which have no products of tiles.
static constexpr u32 LANES = 32;
#include "products.h"
