/* Calls a library that stablexla-compile made, from several threads at once, and writes what it gave to a file. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model.h"

#define THREADS 4
#define CALLS 25

static float x[MODEL_X_BYTES / sizeof(float)];
static float first[MODEL_Y0_BYTES / sizeof(float)], second[MODEL_Y1_BYTES / sizeof(float)];

/* The results lie at odd places, which costs a copy and changes nothing. */
static void* call(void* unused) {
  char* places = malloc(MODEL_Y0_BYTES + MODEL_Y1_BYTES + 8);
  float *a = (float*)(places + 4), *b = (float*)(places + 4 + MODEL_Y0_BYTES);
  (void)unused;
  for (int i = 0; i < CALLS; ++i) {
    const void* arguments[] = {x};
    void* results[] = {a, b};
    int code = i % 2 ? model(x, a, b) : model_main(arguments, results);
    if (code != 0 || memcmp(a, first, sizeof first) != 0 || memcmp(b, second, sizeof second) != 0) exit(10);
  }
  free(places);
  return NULL;
}

int main(int count, char** arguments) {
  pthread_t threads[THREADS];
  FILE *input = fopen(arguments[1], "rb"), *output = fopen(arguments[2], "wb");
  if (count != 3 || MODEL_NUM_PARAMETERS != 1 || MODEL_NUM_RESULTS != 2) return 2;
  if (fread(x, sizeof x, 1, input) != 1) return 3;
  if (model(x, first, second) != 0) return 4;
  if (model(NULL, first, second) != 1 || model(x, NULL, second) != 1) return 5;
  if (model((const float*)((const char*)x + 1), first, second) != 2) return 6;
  if (model_use_threads(0) != 1 || model_use_threads(2) != 0) return 7;
  for (int i = 0; i < THREADS; ++i) pthread_create(&threads[i], NULL, call, NULL);
  for (int i = 0; i < THREADS; ++i) pthread_join(threads[i], NULL);
  fwrite(first, sizeof first, 1, output);
  fwrite(second, sizeof second, 1, output);
  return fclose(output);
}
