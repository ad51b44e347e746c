// lm_head of one instruction set; see isa_tables.h.
#pragma once

#include "reprise/kernels/op_table.h"

namespace reprise::cpu::REPRISE_ISA {

void append_lm_head(OpTable& table);

}  // namespace reprise::cpu::REPRISE_ISA
