/* A program for the tests of runs over devices: it does the steps of a script, which is its only constant.

   script[0] is the number of steps; a step is 14 numbers: the devices (a bit mask), kind, number, combine, repeats,
   further repeats for each device number, outputs, 3 of their places, inputs, 3 of theirs. */
#include <stdint.h>
#include <string.h>

typedef void (*Combine)(const void*, const void*, void*, int64_t, int64_t);

void (*collective)(int64_t, void**, void**, Combine);
void (*call_host)(int64_t, void**, void**);
int64_t (*device_id)(void);
uint64_t (*random_key)(void);
void (*parallel_for)(void (*)(void*, int64_t, int64_t), void*, int64_t, int64_t);

#define COMBINE(name, type, value)                                                           \
  static void name(const void* left, const void* right, void* out, int64_t lo, int64_t hi) { \
    const type *a = left, *b = right;                                                        \
    type* to = out;                                                                          \
    for (int64_t i = lo; i < hi; ++i) to[i] = (type)(value);                                 \
  }
COMBINE(add_float, float, a[i] + b[i])
COMBINE(add_double, double, a[i] + b[i])
COMBINE(add_byte, uint8_t, a[i] + b[i])
COMBINE(ordered, float, a[i] * 0.5f + b[i]) /* neither commutative nor associative */

static const Combine combines[] = {0, add_float, add_double, add_byte, ordered};

enum { COLLECTIVE, HOST, DEVICE, KEY, PARALLEL };

/* notes the device that each of 64 pieces is done for */
static void note_devices(void* ctx, int64_t lo, int64_t hi) {
  for (int64_t i = lo; i < hi; ++i) {
    volatile double work = 1;
    for (int n = 0; n < 20000; ++n) work *= 1.0000001;
    ((int64_t*)ctx)[i] = device_id();
  }
}

static void run(void** packed, int64_t parameters) {
  const int64_t* script = *(const int64_t**)packed[parameters];
  const int64_t* step = script + 1;
  const int64_t device = device_id();
  for (int64_t n = 0; n < script[0]; ++n, step += 14) {
    void *outputs[3], *inputs[3];
    if (!(step[0] >> device & 1)) continue;
    for (int i = 0; i < step[6]; ++i) outputs[i] = *(void**)packed[step[7 + i]];
    for (int i = 0; i < step[10]; ++i) inputs[i] = *(void**)packed[step[11 + i]];
    for (int64_t i = 0; i < step[4] + device * step[5]; ++i) {
      if (step[1] == COLLECTIVE) collective(step[2], outputs, inputs, combines[step[3]]);
      if (step[1] == HOST) call_host(step[2], outputs, inputs);
      if (step[1] == DEVICE) memcpy(outputs[0], &device, 8);
      if (step[1] == PARALLEL) parallel_for(note_devices, outputs[0], 64, 1);
      if (step[1] == KEY) ((uint64_t*)outputs[0])[i] = random_key();
    }
  }
}

void run0(void** packed) { run(packed, 0); }
void run1(void** packed) { run(packed, 1); }
void run2(void** packed) { run(packed, 2); }
void run3(void** packed) { run(packed, 3); }
