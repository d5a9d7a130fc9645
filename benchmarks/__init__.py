"""Speed as ratios against a named peer in the same run; machines are noisy and absolute times mean little."""
