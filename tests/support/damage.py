"""Damage the pages of files."""


def damage(path, *, row):
    """Damage the page that contains the text of a row, but not the footer."""
    damage_text(path, f"row {row:03d}".encode())


def damage_text(path, text):
    """Damage the first page that contains a text, but not the footer."""
    content = path.read_bytes()
    place = content.index(text)
    path.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
