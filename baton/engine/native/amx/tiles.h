// Tile registers (Intel AMX): eight matrices of 16 rows of 64 bytes, and products of them in bfloat16.
//
// Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, vol. 2, LDTILECFG, TILELOADD,
// TILESTORED, TILEZERO, TDPBF16PS. Permission: docs.kernel.org/arch/x86/xstate.html. With
// BATON_EMULATED_TILES the same functions are computed as that manual says, on CPUs without tiles: for tests.
#pragma once

#ifndef BATON_EMULATED_TILES
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#endif

#include <utility>

#include "../vectors.h"

namespace {  // one translation unit includes this: ops.cpp

constexpr int kTile = 16;        // rows of a tile, words of a row
constexpr int kTileWords = 256;  // of a tile
constexpr int kTileBytes = 64;   // of a row

#ifdef BATON_EMULATED_TILES

struct TileRegister {
  alignas(64) uint32_t rows[kTile][kTile];
};
thread_local TileRegister tile_registers[8];

void allow_tiles() {}

// A thread's registers, of 16 whole rows each, while it lives.
struct Tiles {
  Tiles() { std::memset(tile_registers, 0, sizeof tile_registers); }
  ~Tiles() { std::memset(tile_registers, 0xFF, sizeof tile_registers); }  // NaN: no longer to be used
  Tiles(const Tiles&) = delete;
};

template <int TILE>
void zero_tile() {
  std::memset(&tile_registers[TILE], 0, sizeof(TileRegister));
}

template <int TILE>
void load_tile(const void* from, int64_t stride) {
  for (int i = 0; i < kTile; ++i)
    std::memcpy(tile_registers[TILE].rows[i], static_cast<const char*>(from) + i * stride, kTileBytes);
}

template <int TILE>
void store_tile(void* to, int64_t stride) {
  for (int i = 0; i < kTile; ++i)
    std::memcpy(static_cast<char*>(to) + i * stride, tile_registers[TILE].rows[i], kTileBytes);
}

// Not inlined: it runs with denormals as zero, inputs and outputs.
__attribute__((noinline)) void multiply_registers(TileRegister& sums, const TileRegister& rows,
                                                  const TileRegister& lanes) {
  using V = Words<16>::V;
  using W = Words<16>::W;
  for (int m = 0; m < kTile; ++m) {
    V even{}, odd{};
    for (int k = 0; k < kTile; ++k) {
      const W row = W{} + rows.rows[m][k];
      W by;
      std::memcpy(&by, lanes.rows[k], sizeof by);
      even = fused<float, 16>((V)(row << 16), (V)(by << 16), even);
      odd = fused<float, 16>((V)(row & 0xFFFF0000u), (V)(by & 0xFFFF0000u), odd);
    }
    V sum;
    std::memcpy(&sum, sums.rows[m], sizeof sum);
    sum += even + odd;
    std::memcpy(sums.rows[m], &sum, sizeof sum);
  }
}

template <int SUMS, int ROWS, int LANES>
void multiply_tiles() {
  const unsigned before = _mm_getcsr();
  _mm_setcsr((before & ~0x6000u) | 0x8040u);  // to nearest, flushes to zero, denormals are zeros
  asm volatile("" ::: "memory");
  multiply_registers(tile_registers[SUMS], tile_registers[ROWS], tile_registers[LANES]);
  asm volatile("" ::: "memory");
  _mm_setcsr(before);
}

#else

// Asks Linux, once, to keep tiles for this process: without, their first use ends it.
void allow_tiles() {
  constexpr int kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const int failed =
      syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 ? 0 : errno;
  TORCH_CHECK(!failed, "Linux refuses this process the tile registers: ", std::strerror(failed));
}

// A thread's registers, of 16 whole rows each, while it lives. Released, so that Linux need not keep them.
struct Tiles {
  Tiles() {
    alignas(64) static constexpr struct {
      uint8_t palette = 1, start = 0, reserved[14] = {};
      uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
      uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
    } kShapes;
    static_assert(sizeof kShapes == 64);
    asm volatile("ldtilecfg %0" ::"m"(kShapes));
  }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }
  Tiles(const Tiles&) = delete;
};

template <int TILE>
INLINE void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
}

// GCC's intrinsics do not say that they read memory: what was just written might not be there yet.
template <int TILE>
INLINE void load_tile(const void* from, int64_t stride) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(TILE) : "memory");
}

template <int TILE>
INLINE void store_tile(void* to, int64_t stride) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(TILE) : "memory");
}

// sums[m][n] += Σ rows[m][k] · lanes[k][n], words being pairs of bfloat16: from zero a fused sum of the
// lower halves and one of the upper, k in order; both added, and that to `sums`. Each to nearest, denormals
// being zeros. 16 cycles at best, a load of a tile 8 (Optimization Reference Manual, chapter on AMX).
template <int SUMS, int ROWS, int LANES>
INLINE void multiply_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(ROWS), "i"(LANES));
}

#endif

// Calls run(0) to run(N - 1), each a number that is known when it is compiled.
template <int N, class F>
INLINE void unrolled(const F& run) {
  [&]<int... I>(std::integer_sequence<int, I...>) {
    (run(std::integral_constant<int, I>()), ...);
  }(std::make_integer_sequence<int, N>());
}

// Where a tile's lanes lie.
struct Lanes {
  const uint32_t* at;
  int64_t stride;  // bytes from row to row
};

// Adds to sums [ROWS · 16, pitch], or to zero where they are the first, ROWS tiles of rows by COLUMNS of
// lanes(step, column), over `steps` steps of 32 values in order. Rows are packed, [steps][16][16 words], `apart`
// words from tile to tile. With 2 by 2, and with 1 by 4, there is about a load to a product, which hides it.
template <int ROWS, int COLUMNS, class F>
INLINE void sum_tiles(const uint32_t* rows, int64_t apart, const F& lanes, int64_t steps, bool first,
                      float* sums, int64_t pitch) {
  static_assert(ROWS <= 2 && ROWS * COLUMNS <= 4);  // registers: 4 of sums, 2 of rows, 2 of lanes
  const auto each_sum = [&](const auto& run) {
    unrolled<ROWS>([&](auto r) {
      unrolled<COLUMNS>([&](auto c) {
        run(std::integral_constant<int, r * COLUMNS + c>(), sums + r * kTile * pitch + c * kTile);
      });
    });
  };
  each_sum([&](auto tile, float* at) {
    if (first) zero_tile<tile>();
    else load_tile<tile>(at, pitch * sizeof(float));
  });
  for (int64_t s = 0; s < steps; ++s) {
    unrolled<ROWS>([&](auto r) { load_tile<4 + r>(rows + r * apart + s * kTileWords, kTileBytes); });
    unrolled<COLUMNS>([&](auto c) {
      const Lanes by = lanes(s, static_cast<int>(c));
      load_tile<6 + c % 2>(by.at, by.stride);
      unrolled<ROWS>([&](auto r) { multiply_tiles<r * COLUMNS + c, 4 + r, 6 + c % 2>(); });
    });
  }
  each_sum([&](auto tile, float* at) { store_tile<tile>(at, pitch * sizeof(float)); });
}

}  // namespace
