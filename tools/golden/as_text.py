"""Bytes as text of C, for goldens that are files: base64 in lines, which tests/golden_bytes.h reads."""
import base64

COLUMNS = 136


def lines_of(name, data):
    """The definition of lines named `name`."""
    text = base64.b64encode(data).decode()
    return f"static const char *const {name}[] = {{\n" + "".join(f'    "{text[i:i + COLUMNS]}",\n' for i in range(0, len(text), COLUMNS)) + "    NULL,\n};\n"
