"""Speed and memory, as ratios measured in one run: what `fewshift bench` prints."""
