// What the CPU and the operating system offer. Compiled without ISA flags: it must run anywhere.
#include <array>
#include <cstdint>

#include "reprise/kernels/cpu_ops.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace reprise {
namespace {

constexpr std::array<Isa, 5> kIsas = {Isa::kGeneric, Isa::kAvx2, Isa::kAvx512, Isa::kAvx512Bf16,
                                      Isa::kAmx};

#if defined(__x86_64__)
struct CpuidResult {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

CpuidResult cpuid(unsigned leaf, unsigned subleaf) {
  CpuidResult r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);  // zeros if there is no leaf
  return r;
}

bool bit(unsigned value, unsigned index) { return ((value >> index) & 1u) != 0; }

// The register states that the operating system saves (XCR0).
std::uint64_t saved_states() {
  std::uint32_t low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

// Linux lends a process the tile registers of AMX when it asks (Documentation/arch/x86/xstate.rst);
// asking again changes nothing.
bool tiles_permitted() {
  constexpr int kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
  constexpr int kTileData = 18;               // state component of the tiles
  return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

Isa detect_x86() {
  const CpuidResult basic = cpuid(1, 0), extended = cpuid(7, 0), more = cpuid(7, 1);
  const bool osxsave = bit(basic.ecx, 27);
  const std::uint64_t states = osxsave ? saved_states() : 0;
  constexpr std::uint64_t kAvxStates = 0x6;      // xmm, ymm
  constexpr std::uint64_t kAvx512States = 0xe6;  // and opmask, zmm
  const bool fma = bit(basic.ecx, 12), f16c = bit(basic.ecx, 29);
  const bool avx2 = bit(extended.ebx, 5), bmi2 = bit(extended.ebx, 8);
  if ((states & kAvxStates) != kAvxStates || !fma || !f16c || !avx2 || !bmi2) {
    return Isa::kGeneric;
  }
  const bool avx512 = bit(extended.ebx, 16) && bit(extended.ebx, 17) &&  // F, DQ
                      bit(extended.ebx, 30) && bit(extended.ebx, 31);    // BW, VL
  if ((states & kAvx512States) != kAvx512States || !avx512) return Isa::kAvx2;
  if (!bit(more.eax, 5)) return Isa::kAvx512;
  constexpr std::uint64_t kTileStates = 0x60000;                    // tile configuration, tile data
  const bool amx = bit(extended.edx, 24) && bit(extended.edx, 22);  // TILE, BF16
  const bool tiles = amx && (states & kTileStates) == kTileStates && tiles_permitted();
  return tiles ? Isa::kAmx : Isa::kAvx512Bf16;
}
#endif

}  // namespace

const char* name_of(Isa isa) {
  switch (isa) {
    case Isa::kGeneric:
      return "generic";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx512Bf16:
      return "avx512_bf16";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

std::optional<Isa> parse_isa(std::string_view name) {
  for (const Isa isa : kIsas) {
    if (name == name_of(isa)) return isa;
  }
  return std::nullopt;
}

Isa detect_isa() {
#if defined(__x86_64__)
  return detect_x86();
#else
  return Isa::kGeneric;
#endif
}

}  // namespace reprise
