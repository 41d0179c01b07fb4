"""Damage to models and files."""


def damage(path, *, row):
    """Breaks the page that holds the text of a row; the footer stays."""
    damage_text(path, f"row {row:03d}".encode())


def damage_text(path, text):
    """Breaks the page that holds a text first; the footer stays."""
    content = path.read_bytes()
    place = content.index(text)
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
