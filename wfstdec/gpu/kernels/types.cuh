// Numbers of fixed size, and what stands for none.
#pragma once

typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

constexpr u32 NONE = 0xffffffffu;  // no state, no arc, no frame, no slot, no label

// Where a struct has a field, in bytes. (NVRTC knows the name that its front end has
// for it, and not that of g++.)
#ifdef CUDA_EMULATION
#define OFFSET_OF(type, field) __builtin_offsetof(type, field)
#else
#define OFFSET_OF(type, field) __INTADDR__(&static_cast<type*>(nullptr)->field)
#endif
