"""Without a GPU the kernel runs in Triton's interpreter, which must be chosen before the import."""

import os

import torch

if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")
