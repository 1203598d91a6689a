"""A small language of unequally frequent domains: data whose experts cannot be loaded evenly.

Each sequence belongs to one domain, with its own symbols and its own second-order rule for the
next symbol. Domains follow Zipf's law, as topics of web text do: the first is most of the data.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

TABLES_SEED = 99
"""The rules are one fixed set; seeds draw sequences from it."""


@dataclass(frozen=True)
class SkewedLanguage:
    """Where tokens come from."""

    domains: int = 8
    symbols: int = 16
    """Of each domain; the vocabulary is domains x symbols."""
    zipf: float = 2.0
    """Frequency of the r-th domain is proportional to r to the power of minus this."""
    noise: float = 0.05
    """Share of symbols that follow no rule."""

    @property
    def vocab(self) -> int:
        """Tokens of the language."""
        return self.domains * self.symbols

    def frequencies(self) -> Tensor:
        """Of the domains; they sum to one."""
        rank = torch.arange(1, self.domains + 1, dtype=torch.float64)
        weight = rank**-self.zipf
        return weight / weight.sum()

    def rules(self) -> Tensor:
        """The next symbol after each pair [domains, symbols, symbols]; rows are permutations."""
        draw = torch.Generator().manual_seed(TABLES_SEED)
        rows = [
            torch.randperm(self.symbols, generator=draw) for _ in range(self.domains * self.symbols)
        ]
        return torch.stack(rows).view(self.domains, self.symbols, self.symbols)

    def batch(self, rules: Tensor, count: int, length: int, draw: torch.Generator) -> Tensor:
        """Token ids [count, length + 1]; the domain of a token is id // symbols."""
        domain = torch.multinomial(self.frequencies(), count, replacement=True, generator=draw)
        symbols = torch.randint(0, self.symbols, (count, length + 1), generator=draw)
        ruled = torch.rand((count, length + 1), generator=draw) >= self.noise
        for i in range(2, length + 1):
            after = rules[domain, symbols[:, i - 2], symbols[:, i - 1]]
            symbols[:, i] = torch.where(ruled[:, i], after, symbols[:, i])
        return symbols + domain.unsqueeze(1) * self.symbols
