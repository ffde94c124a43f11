"""GGUF files: dequantised once to safetensors, which all other code reads."""
