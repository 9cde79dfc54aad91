"""Mock data that can be learned: each token is, most of the time, a fixed function of the one before it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch


@dataclass(frozen=True)
class MockData:
    """Sequences of a noisy permutation of the vocabulary: token t+1 is permutation[token t] or, with probability
    `noise`, any. Sample i depends on the seed and on i alone: every parallel layout trains on the same batches."""

    vocab_size: int
    seq_length: int
    seed: int
    noise: float = 0.1
    count: int = 0  # of samples, which then come again and again; 0: there is no end of them

    def samples(self, indices: list[int]) -> npt.NDArray[np.int64]:
        """Token ids, shape [len(indices), seq_length + 1]."""
        permutation = np.random.default_rng(self.seed).permutation(self.vocab_size)
        rngs = [np.random.default_rng((self.seed, index)) for index in indices]
        random_tokens = np.stack([rng.integers(self.vocab_size, size=self.seq_length + 1) for rng in rngs])
        noisy = np.stack([rng.random(self.seq_length + 1) < self.noise for rng in rngs])
        tokens = random_tokens.copy()
        for position in range(1, self.seq_length + 1):
            follows = permutation[tokens[:, position - 1]]
            tokens[:, position] = np.where(noisy[:, position], random_tokens[:, position], follows)
        return tokens

    def micro_batches(
        self, micro_batch_size: int, data_parallel_rank: int, data_parallel_size: int, device: torch.device
    ) -> Iterator[torch.Tensor]:
        """Endless micro batches of one data-parallel rank, each of shape [micro_batch_size, seq_length + 1]."""
        start = data_parallel_rank * micro_batch_size
        while True:
            indices = [index % self.count if self.count else index for index in range(start, start + micro_batch_size)]
            yield torch.from_numpy(self.samples(indices)).to(device)
            start += micro_batch_size * data_parallel_size
