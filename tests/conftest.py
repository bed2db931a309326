"""One thread (two on a busy machine crawl) and reproducible hypothesis runs for the whole suite."""

import hypothesis
import torch

torch.set_num_threads(1)
hypothesis.settings.register_profile("crowdshot", deadline=None, derandomize=True, max_examples=40)
hypothesis.settings.load_profile("crowdshot")
