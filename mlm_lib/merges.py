"""Which pieces WordPiece joins, the commonest pair first. Built in lesson 01."""

import heapq
from collections import Counter, defaultdict

PREFIX = "##"  # marks a piece that continues a word


def symbols_of(word, kept):
    """The letters of a word: the first bare, the others with the prefix.

    A letter that is not kept leaves a gap: what follows it still does not begin the word.
    """
    parts = [word[0], *(PREFIX + letter for letter in word[1:])]
    return [part for part, letter in zip(parts, word) if letter in kept]


def merges(symbols, counts, min_frequency):
    """Yield the pairs to merge, commonest first. Rewrites `symbols` in place.

    A merge changes only the words that hold the pair, so only their pairs are counted again.
    """
    # 1. count of a pair = sum over the words: how often it stands there × how often the word comes
    pair_counts, where = Counter(), defaultdict(set)
    for word, parts in enumerate(symbols):
        for pair in zip(parts, parts[1:]):
            pair_counts[pair] += counts[word]
            where[pair].add(word)
    # 2. A heap gives the largest count, of equal ones the first pair in the alphabet. Its entries
    #    may be outdated: one is believed only if it equals the pair's count now.
    heap = [(-count, pair) for pair, count in pair_counts.items()]
    heapq.heapify(heap)
    while heap:
        count, pair = heapq.heappop(heap)
        if -count != pair_counts[pair]:
            continue
        if -count < max(1, min_frequency):
            return
        yield pair
        # 3. Merge it in its words: their old pairs are taken off, the new ones added.
        changed = set()
        for word in where.pop(pair):
            before = symbols[word]
            after = symbols[word] = merged(before, pair)
            for old in zip(before, before[1:]):
                pair_counts[old] -= counts[word]
                changed.add(old)
            for new in zip(after, after[1:]):
                pair_counts[new] += counts[word]
                where[new].add(word)
                changed.add(new)
        # 4. What changed goes onto the heap with its new count.
        for other in changed:
            if pair_counts[other] > 0:
                heapq.heappush(heap, (-pair_counts[other], other))


def merged(parts, pair):
    """The parts of a word with each occurrence of the pair made one, from the left.

    >>> merged(["b", "##a", "##n", "##a", "##n", "##a"], ("##a", "##n"))
    ['b', '##an', '##an', '##a']
    """
    left, right = pair
    parts_now, place = [], 0
    while place < len(parts):
        if parts[place] == left and parts[place + 1 : place + 2] == [right]:
            parts_now.append(left + right.removeprefix(PREFIX))
            place += 2
        else:
            parts_now.append(parts[place])
            place += 1
    return parts_now
