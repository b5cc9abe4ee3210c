import torch
from hypothesis import settings

# One thread and no random examples: the same run every time, whatever else the machine does.
torch.set_num_threads(1)
settings.register_profile("polyshot", derandomize=True, deadline=None, max_examples=80)
settings.load_profile("polyshot")
