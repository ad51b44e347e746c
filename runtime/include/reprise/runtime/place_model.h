// Moves the frozen weights to the memory of a device.
#pragma once

#include "reprise/runtime/backend.h"
#include "reprise/runtime/model.h"

namespace reprise {

// `model` with every weight in memory of `backend`, which must outlive it; the host's copies are
// given back one by one. Where the host's memory is the backend's, `model` as it is.
Model place_model(Model model, Backend& backend);

}  // namespace reprise
