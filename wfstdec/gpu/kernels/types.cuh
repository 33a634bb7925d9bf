// Numbers of fixed size, and the value for none.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 NONE = 0xffffffffu;  // no state, no arc, no frame, no slot, no label

// Offset of a field in a struct, in bytes. (NVRTC supports its front end's name for
// it, but not that of g++.)
#ifdef CUDA_EMULATION
#define OFFSET_OF(type, field) __builtin_offsetof(type, field)
#else
#define OFFSET_OF(type, field) __INTADDR__(&static_cast<type*>(nullptr)->field)
#endif
