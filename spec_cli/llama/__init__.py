"""llama.cpp through llama-cpp-python's low-level API. No other package imports `llama_cpp`."""
