#pragma once
#include "reprise/runtime/bnb_weight.h"
