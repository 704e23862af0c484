# %% 01.1 right: character by character, blanks set around each mark and each Chinese character
def split(text):
    out = ""
    for c in unicodedata.normalize("NFD", text).lower():
        if unicodedata.category(c) == "Mn":
            continue
        alone = not (c.isalnum() or c.isspace()) or "\u4e00" <= c <= "\u9fff"
        out += f" {c} " if alone else c
    return out.split()


# %% 01.1 right: a substitution, then split
def split(text):
    text = unicodedata.normalize("NFD", text.lower())
    text = "".join(c for c in text if not unicodedata.combining(c))
    return re.sub(r"([^\w\s]|_|[\u4e00-\u9fff])", r" \1 ", text).split()


# %% 01.1 wrong: marks are set apart before the accents go | as a character of its own
def split(text):
    text = re.sub(r"([^\w\s]|_|[\u4e00-\u9fff])", r" \1 ", text.lower())
    text = unicodedata.normalize("NFD", text)
    return "".join(c for c in text if unicodedata.category(c) != "Mn").split()


# %% 01.1 wrong: white space only | marks hang on to words
def split(text):
    apart = unicodedata.normalize("NFD", text)
    return "".join(c for c in apart if unicodedata.category(c) != "Mn").lower().split()


# %% 01.1 wrong: accents are kept | an accent was not taken off
def split(text):
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+|[^\w\s]|_", text.lower())


# %% 01.1 wrong: accents go by dropping all that is not ASCII | an accent was not taken off
def split(text):
    return re.findall(r"\w+|[^\w\s]", text.encode("ascii", "ignore").decode().lower())


# %% 01.1 wrong: lower-casing is forgotten | lower-case every word
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn")
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+|[^\w\s]|_", plain)


# %% 01.1 wrong: the lesson's pattern, in which _ is a letter | _ is a mark
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn").lower()
    return re.findall(r"\w+|[^\w\s]", plain)


# %% 01.1 wrong: Chinese characters stay together | a Chinese character is a word of its own
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn").lower()
    return re.findall(r"[^\W_]+|[^\w\s]|_", plain)


# %% 01.1 wrong: a run of marks is one word | three dots are three marks
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn").lower()
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+|[^\w\s]+|_", plain)


# %% 01.1 wrong: marks are dropped | marks are lost
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn").lower()
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+", plain)


# %% 01.1 wrong: a table of accents, for letters that hold theirs | as a character of its own
def split(text):
    table = str.maketrans("éèêëûüùñçöäàâáíóúïô", "eeeeuuuncoaaaaiouio")
    plain = text.lower().translate(table)
    return re.findall(r"[\u4e00-\u9fff]|[^\W_\u4e00-\u9fff]+|[^\w\s]|_", plain)


# %% 01.1 wrong: a string with blanks | a list of words is needed
def split(text):
    apart = unicodedata.normalize("NFD", text)
    plain = "".join(c for c in apart if unicodedata.category(c) != "Mn").lower()
    return " ".join(re.findall(r"\w+|[^\w\s]", plain))


# %% 01.2 right: the rest of the word is cut by itself, with a prefix that grows
def cut(word, vocab):
    if len(word) > 100:
        return ["[UNK]"]
    pieces, rest, prefix = [], word, ""
    while rest:
        fits = [n for n in range(1, len(rest) + 1) if prefix + rest[:n] in vocab]
        if not fits:
            return ["[UNK]"]
        pieces.append(prefix + rest[: max(fits)])
        rest, prefix = rest[max(fits) :], "##"
    return pieces


# %% 01.2 right: recursion
def cut(word, vocab):
    def rest(left):
        if left in ("", "##"):
            return []
        for end in range(len(left), 0, -1):
            if left[:end] in vocab and left[:end] != "##":
                behind = rest("##" + left[end:])
                return None if behind is None else [left[:end], *behind]
        return None

    pieces = rest(word) if len(word) <= 100 else None
    return ["[UNK]"] if pieces is None else pieces


# %% 01.2 wrong: what fits is kept, [UNK] stands for the rest | makes the whole word unknown
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                break
        else:
            return [*pieces, "[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# %% 01.2 wrong: pieces inside a word are looked up bare | begins with ##
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            if word[start:end] in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(word[start:end])
        start = end
    return pieces


# %% 01.2 wrong: the shortest piece is taken | begin with all that is left
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(start + 1, len(word) + 1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# %% 01.2 wrong: the whole word is never tried | begin with all that is left
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word) - (start == 0), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# %% 01.2 wrong: a long word is cut like any other | more than 100 letters
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces


# %% 01.2 wrong: 100 letters are already too many | a word of 100 letters is still cut
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces if len(word) < 100 else ["[UNK]"]


# %% 01.2 wrong: another cut is looked for where the greedy one fails | never goes back
def cut(word, vocab):
    def rest(start):
        if start == len(word):
            return []
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            behind = rest(end) if piece in vocab else None
            if behind is not None:
                return [piece, *behind]
        return None

    return (rest(0) if len(word) <= 100 else None) or ["[UNK]"]


# %% 01.2 wrong: a letter that fits nothing is skipped | makes the whole word unknown
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab:
                pieces.append(piece)
                break
        start = end
    return pieces


# %% 01.2 wrong: a bare piece serves inside a word where no other fits | inside one ##water
def cut(word, vocab):
    pieces, start = [], 0
    while start < len(word):
        for end in range(len(word), start, -1):
            piece = word[start:end] if start == 0 else "##" + word[start:end]
            if piece in vocab or word[start:end] in vocab and end == len(word):
                break
        else:
            return ["[UNK]"]
        pieces.append(piece)
        start = end
    return pieces if len(word) <= 100 else ["[UNK]"]


# %% 01.3 right: lists with repetitions, counted at the end
def score_pairs(parts, counts):
    pieces = Counter(p for word in parts for p in parts[word] * counts[word])
    pairs = Counter(p for word, cut in parts.items() for p in [*zip(cut, cut[1:])] * counts[word])
    total = sum(pieces.values())
    return {
        (a, b): (n, n / pieces[a] / pieces[b], n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 right: probabilities and sums of logarithms, by index
def score_pairs(parts, counts):
    often, together = {}, {}
    for word in parts:
        row = parts[word]
        for i in range(len(row)):
            often[row[i]] = often.get(row[i], 0) + counts[word]
            if i > 0:
                pair = row[i - 1], row[i]
                together[pair] = together.get(pair, 0) + counts[word]
    total = sum(often.values())
    scores = {}
    for pair in together:
        n, left, right = together[pair], often[pair[0]], often[pair[1]]
        gain = n * (math.log(n / total) - math.log(left / total) - math.log(right / total))
        scores[pair] = [n, n / (left * right), gain]
    return scores


# %% 01.3 wrong: each different word counts once | tea was seen three times
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for cut in parts.values():
        pieces.update(cut)
        pairs.update(zip(cut, cut[1:]))
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: ## is taken off, so that ##a and a are one | the keys are the pairs as they stand
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        cut = [piece.removeprefix("##") for piece in cut]
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: left and right are counted within their pairs | divides by too little
def score_pairs(parts, counts):
    pairs, total = Counter(), 0
    for word, cut in parts.items():
        total += counts[word] * len(cut)
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    scores = {}
    for (a, b), n in pairs.items():
        left = sum(m for (c, _), m in pairs.items() if c == a)
        right = sum(m for (c, d), m in pairs.items() if d == b and c == a)
        scores[a, b] = (n, n / (left * right), n * math.log(total * n / (left * right)))
    return scores


# %% 01.3 wrong: a pair is counted once a word | a pair counts at each place
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in set(zip(cut, cut[1:])):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: N is how many pairs there are | check N
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pairs.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: N counts different pieces | check N
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = len(pieces)
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: the logarithm to base two | natural logarithm
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log2(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: the logarithm is not weighed | n times the logarithm
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: words of one piece are passed over | a word of one piece
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word, cut in parts.items():
        if len(cut) == 1:
            continue
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.3 wrong: the words are cut into letters again | not the letters of the words
def score_pairs(parts, counts):
    pieces, pairs = Counter(), Counter()
    for word in parts:
        cut = [word[0], *("##" + letter for letter in word[1:])]
        for piece in cut:
            pieces[piece] += counts[word]
        for pair in zip(cut, cut[1:]):
            pairs[pair] += counts[word]
    total = pieces.total()
    return {
        (a, b): (n, n / (pieces[a] * pieces[b]), n * math.log(total * n / (pieces[a] * pieces[b])))
        for (a, b), n in pairs.items()
    }


# %% 01.4 right: a blank before each token, then the glue
def join(tokens):
    kept = [token for token in tokens if token not in ("[PAD]", "[CLS]", "[SEP]")]
    if kept and kept[0].startswith("##"):
        kept[0] = kept[0][2:]
    return " ".join(kept).replace(" ##", "")


# %% 01.4 right: a string that grows
def join(tokens):
    text = ""
    for token in tokens:
        if token in SPECIAL - {"[UNK]", "[MASK]"}:
            continue
        if token[:2] == "##":
            text += token[2:]
        else:
            text += " " + token
    return text.strip()


# %% 01.4 wrong: blanks everywhere | stands apart from the word
def join(tokens):
    kept = [token for token in tokens if token not in {"[PAD]", "[CLS]", "[SEP]"}]
    return " ".join(token.removeprefix("##") for token in kept)


# %% 01.4 wrong: ## stays | no part of the text
def join(tokens):
    return " ".join(token for token in tokens if token not in {"[PAD]", "[CLS]", "[SEP]"})


# %% 01.4 wrong: special tokens are shown | special tokens are left in
def join(tokens):
    return " ".join(tokens).replace(" ##", "")


# %% 01.4 wrong: all special tokens go | since something stood there
def join(tokens):
    return " ".join(token for token in tokens if token not in SPECIAL).replace(" ##", "")


# %% 01.4 wrong: lstrip takes every # | the mark # is a word
def join(tokens):
    words = []
    for token in tokens:
        if token in {"[PAD]", "[CLS]", "[SEP]"}:
            continue
        if token.startswith("#") and words:
            words[-1] += token.lstrip("#")
        else:
            words.append(token.lstrip("#"))
    return " ".join(words)


# %% 01.4 wrong: a first piece keeps its ## | a window that begins inside a word
def join(tokens):
    kept = [token for token in tokens if token not in {"[PAD]", "[CLS]", "[SEP]"}]
    return " ".join(kept).replace(" ##", "")


# %% 01.4 wrong: the special tokens leave blanks | blanks too many
def join(tokens):
    text = " ".join(tokens).replace(" ##", "").replace("##", "")
    for token in ("[PAD]", "[CLS]", "[SEP]"):
        text = text.replace(token, "")
    return text


# %% 01.4 wrong: a first piece is glued to a word that is not there | list index out of range
def join(tokens):
    words = []
    for token in tokens:
        if token in {"[PAD]", "[CLS]", "[SEP]"}:
            continue
        if token.startswith("##"):
            words[-1] += token[2:]
        else:
            words.append(token)
    return " ".join(words)


# %% 01.4 wrong: a list of words | a string is needed
def join(tokens):
    kept = [token for token in tokens if token not in {"[PAD]", "[CLS]", "[SEP]"}]
    return " ".join(kept).replace(" ##", "").split()


# %% 01.5 right: word by word, an array of lengths
def prices(text, tokens, sizes):
    words = split(text)
    found = []
    for size in sizes:
        vocab = frozenset(tokens[:size])
        cuts = [cut(word, vocab) for word in words]
        lost = [pieces == ["[UNK]"] for pieces in cuts]
        found.append((sum(map(len, cuts)) / len(words), sum(lost) / len(words)))
    return found


MY_TEXT = REVIEWS[3000:5000]


# %% 01.5 right: ranks of the tokens, a dictionary that answers by rank
def prices(text, tokens, sizes):
    rank = {token: place for place, token in enumerate(tokens)}
    words = Counter(split(text))
    total = sum(words.values())

    def one(size):
        vocab = {token for token in rank if rank[token] < size}
        needed = unknown = 0
        for word, n in words.items():
            pieces = cut(word, vocab)
            needed += n * len(pieces)
            unknown += n if pieces[0] == "[UNK]" else 0
        return [needed / total, unknown / total]

    return [tuple(one(size)) for size in sizes]


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: words are what white space parts | marks are words, too
def prices(text, tokens, sizes):
    words, found = re.findall(r"\w+", text.lower()), []
    for size in sizes:
        vocab = set(tokens[:size])
        cuts = [cut(word, vocab) for word in words]
        lost = cuts.count(["[UNK]"])
        found.append((sum(map(len, cuts)) / len(words), lost / len(words)))
    return found


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: each different word counts once | a word counts as often as it comes
def prices(text, tokens, sizes):
    words, found = sorted(set(split(text))), []
    for size in sizes:
        vocab = set(tokens[:size])
        cuts = [cut(word, vocab) for word in words]
        found.append((sum(map(len, cuts)) / len(words), cuts.count(["[UNK]"]) / len(words)))
    return found


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: every size has all tokens | a smaller size changed nothing
def prices(text, tokens, sizes):
    words, vocab = split(text), set(tokens)
    cuts = [cut(word, vocab) for word in words]
    needed = sum(map(len, cuts)) / len(words)
    return [(needed, cuts.count(["[UNK]"]) / len(words)) for size in sizes]


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: unknown words are left out of the tokens | counts
def prices(text, tokens, sizes):
    words, found = split(text), []
    for size in sizes:
        vocab = set(tokens[:size])
        cuts = [cut(word, vocab) for word in words]
        known = [pieces for pieces in cuts if pieces != ["[UNK]"]]
        needed = sum(map(len, known)) / len(known) if known else 0.0
        found.append((needed, 1 - len(known) / len(words)))
    return found


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: the share of [UNK] among the tokens | Divide by words, not by tokens
def prices(text, tokens, sizes):
    words, found = split(text), []
    for size in sizes:
        vocab = set(tokens[:size])
        pieces = [piece for word in words for piece in cut(word, vocab)]
        found.append((len(pieces) / len(words), pieces.count("[UNK]") / len(pieces)))
    return found


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: the tokens are sorted first | in the order given
def prices(text, tokens, sizes):
    words, found = split(text), []
    for size in sizes:
        vocab = set(sorted(tokens)[:size])
        cuts = [cut(word, vocab) for word in words]
        found.append((sum(map(len, cuts)) / len(words), cuts.count(["[UNK]"]) / len(words)))
    return found


MY_TEXT = REVIEWS[5000:6000]


# %% 01.5 wrong: one sentence for a text | MY_TEXT has
def prices(text, tokens, sizes):
    words, found = split(text), []
    for size in sizes:
        vocab = set(tokens[:size])
        cuts = [cut(word, vocab) for word in words]
        found.append((sum(map(len, cuts)) / len(words), cuts.count(["[UNK]"]) / len(words)))
    return found


MY_TEXT = "Fold the dough in thirds, rotate, and fold it again."


# %% 01.5 wrong: the share of [UNK] is left at zero | though no token fits q
def prices(text, tokens, sizes):
    words, found = split(text), []
    for size in sizes:
        pieces = [piece for word in words for piece in cut(word, set(tokens[:size]))]
        found.append((len(pieces) / len(words), pieces.count("UNK") / len(words)))
    return found


MY_TEXT = REVIEWS[5000:6000]
