// What nearly every file includes, compiled once.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <sstream>

#include "decode.h"
#include "driver.h"
#include "floats.h"
#include "lanes.h"
