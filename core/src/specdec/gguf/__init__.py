"""GGUF files: dequantised once to safetensors, which is what everything else reads."""
