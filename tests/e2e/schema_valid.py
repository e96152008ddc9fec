"""schema_valid.py - JSON Schema (drafts 4 to 2020-12) as a judge that shares nothing with quire's: a value in, the path of what is wrong out.

Plain reading of the specification, a function a keyword. Numbers are decimals, so that nothing is rounded. Of formats the usual ones are judged, others are annotations. What is not judged raises Unknown:
references to other documents or by name, and members that nothing evaluated.
"""
import datetime
import decimal
import functools
import json
import re

decimal.setcontext(decimal.Context(prec=3000, Emax=99999, Emin=-99999))
Unknown = type('Unknown', (Exception,), {'__doc__': 'Something that is not judged here.'})


def parse(text):
    def constant(word):
        raise ValueError(word)
    return json.loads(text, parse_float=decimal.Decimal, parse_constant=constant)


def is_number(v):
    return isinstance(v, (int, decimal.Decimal)) and not isinstance(v, bool)


TYPES = {'null': lambda v: v is None, 'boolean': lambda v: isinstance(v, bool), 'string': lambda v: isinstance(v, str), 'array': lambda v: isinstance(v, list),
         'object': lambda v: isinstance(v, dict), 'number': is_number, 'integer': lambda v: is_number(v) and v == int(v), 'any': lambda v: True}


def same(a, b):
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b if isinstance(a, str) or isinstance(b, str) else is_number(a) and is_number(b) and a == b


@functools.lru_cache(None)
def ecma(pattern):
    """What Python writes otherwise than ECMAScript: classes are of ASCII there, blanks and ends of lines are more."""
    blank = r'\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff'
    out, at, inside = '', 0, False
    while at < len(pattern):
        c = pattern[at:at + 2] if pattern[at] == '\\' else pattern[at]
        at += len(c)
        if c in ('[', ']'):
            inside = c == '['
        classes = {r'\d': '0-9', r'\w': 'A-Za-z0-9_', r'\s': blank}
        if c.lower() in classes and (c.islower() or not inside):
            held = classes[c.lower()]
            c = held if inside else f'[{"" if c.islower() else "^"}{held}]'
        elif c in ('$', '.') and not inside:
            c = {'$': r'\Z', '.': r'[^\n\r\u2028\u2029]'}[c]
        elif c == r'\/':
            c = '/'
        out += c
    return out


def found(pattern, text):
    try:
        return re.search(ecma(pattern), text) is not None
    except re.error as e:
        raise Unknown(str(e)) from e


def is_date(text):
    try:
        return datetime.date.fromisoformat(text) is not None and len(text) == 10
    except ValueError:
        return False


CLOCK = re.compile(r'([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)([.][0-9]+)?(Z|[-+]([01][0-9]|2[0-3]):[0-5][0-9])', re.I)
LABELS = re.compile(r'(?=.{1,253}\Z)[A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?([.][A-Za-z0-9]([-A-Za-z0-9]{0,61}[A-Za-z0-9])?)*')
FORMATS = {
    'date': is_date, 'time': CLOCK.fullmatch, 'date-time': lambda t: is_date(t[:10]) and t[10:11] in ('T', 't') and CLOCK.fullmatch(t[11:]), 'hostname': LABELS.fullmatch,
    'uuid': re.compile('[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}').fullmatch, 'email': re.compile(r'[^@\s]+@[^@\s]+').fullmatch,
    'ipv4': re.compile(r'((25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])([.](?!$)|$)){4}').fullmatch, 'uri': re.compile(r'[A-Za-z][-+.A-Za-z0-9]*:[!-~]*').fullmatch}


class Judge:
    def __init__(self, schema):
        self.root = schema

    def wrong(self, schema, v, at='$'):
        """The path of the first thing that is wrong, or None."""
        if isinstance(schema, bool):
            return None if schema else at
        if '$ref' in schema:
            wrong = self.wrong(self.resolve(schema['$ref']), v, at)
            if wrong or '$schema' not in self.root or '2019' not in self.root['$schema'] and '2020' not in self.root['$schema']:
                return wrong
        for keyword, value in schema.items():
            judge = getattr(self, 'k_' + keyword.lstrip('$'), None)
            wrong = judge(value, v, schema, at) if judge else None
            if wrong:
                return wrong
        return None

    def fits(self, schema, v):
        return self.wrong(schema, v) is None

    def resolve(self, ref):
        if not ref.startswith('#'):
            raise Unknown(ref)
        v = self.root
        for part in ref[1:].split('/')[1:] if ref != '#' else ():
            part = re.sub('%([0-9A-Fa-f]{2})', lambda m: chr(int(m[1], 16)), part).replace('~1', '/').replace('~0', '~')
            try:
                v = v[int(part)] if isinstance(v, list) else v[part]
            except (KeyError, ValueError, IndexError) as e:
                raise Unknown(ref) from e
        if ref != '#' and not ref.startswith('#/'):
            raise Unknown(ref)
        return v

    # ---- of any value ----

    def k_unevaluatedProperties(self, schema, v, whole, at):
        if schema is not True and isinstance(v, (dict, list)):
            raise Unknown('unevaluated members')

    k_unevaluatedItems = k_unevaluatedProperties

    def k_type(self, want, v, _, at):
        return None if any(TYPES[t](v) for t in ([want] if isinstance(want, str) else want)) else at

    def k_enum(self, values, v, _, at):
        return None if any(same(v, w) for w in values) else at

    def k_const(self, value, v, _, at):
        return None if same(v, value) else at

    def k_allOf(self, schemas, v, _, at):
        return next((w for w in (self.wrong(s, v, at) for s in schemas) if w), None)

    def k_anyOf(self, schemas, v, _, at):
        return None if any(self.fits(s, v) for s in schemas) else at

    def k_oneOf(self, schemas, v, _, at):
        return None if sum(self.fits(s, v) for s in schemas) == 1 else at

    def k_not(self, schema, v, _, at):
        return at if self.fits(schema, v) else None

    def k_if(self, schema, v, whole, at):
        return self.wrong(whole.get('then' if self.fits(schema, v) else 'else', True), v, at)

    # ---- of numbers and strings ----

    def bound(self, v, at, holds):
        return None if not is_number(v) or holds() else at

    def k_minimum(self, m, v, whole, at):
        return self.bound(v, at, lambda: v > m if whole.get('exclusiveMinimum') is True else v >= m)

    def k_maximum(self, m, v, whole, at):
        return self.bound(v, at, lambda: v < m if whole.get('exclusiveMaximum') is True else v <= m)

    def k_exclusiveMinimum(self, m, v, _, at):
        return None if isinstance(m, bool) else self.bound(v, at, lambda: v > m)

    def k_exclusiveMaximum(self, m, v, _, at):
        return None if isinstance(m, bool) else self.bound(v, at, lambda: v < m)

    def k_multipleOf(self, m, v, _, at):
        return self.bound(v, at, lambda: decimal.Decimal(v) % decimal.Decimal(m) == 0)

    def k_minLength(self, n, v, _, at):
        return at if isinstance(v, str) and len(v) < n else None

    def k_maxLength(self, n, v, _, at):
        return at if isinstance(v, str) and len(v) > n else None

    def k_format(self, name, v, _, at):
        return at if isinstance(v, str) and name in FORMATS and not FORMATS[name](v) else None

    def k_pattern(self, p, v, _, at):
        return at if isinstance(v, str) and not found(p, v) else None

    # ---- of arrays ----

    def k_prefixItems(self, schemas, v, _, at):
        return next((w for w in (self.wrong(s, x, f'{at}[]') for s, x in zip(schemas, v)) if w), None) if isinstance(v, list) else None

    def k_items(self, schema, v, whole, at):
        if not isinstance(v, list):
            return None
        if isinstance(schema, list):
            rest = v[len(schema):]
            return self.k_prefixItems(schema, v, whole, at) or next((w for w in (self.wrong(whole.get('additionalItems', True), x, f'{at}[]') for x in rest) if w), None)
        return next((w for w in (self.wrong(schema, x, f'{at}[]') for x in v[len(whole.get('prefixItems', [])):]) if w), None)

    def k_minItems(self, n, v, _, at):
        return at if isinstance(v, list) and len(v) < n else None

    def k_maxItems(self, n, v, _, at):
        return at if isinstance(v, list) and len(v) > n else None

    def k_uniqueItems(self, on, v, _, at):
        return at if on and isinstance(v, list) and any(same(a, b) for i, a in enumerate(v) for b in v[:i]) else None

    def k_contains(self, schema, v, whole, at):
        if not isinstance(v, list):
            return None
        n = sum(self.fits(schema, x) for x in v)
        return None if whole.get('minContains', 1) <= n <= whole.get('maxContains', n) else at

    # ---- of objects ----

    def k_properties(self, schemas, v, _, at):
        return next((w for w in (self.wrong(s, v[k], f'{at}.{k}') for k, s in schemas.items() if k in v) if w), None) if isinstance(v, dict) else None

    def k_patternProperties(self, schemas, v, _, at):
        return next((w for w in (self.wrong(s, x, f'{at}.{k}') for p, s in schemas.items() for k, x in v.items() if found(p, k)) if w), None) if isinstance(v, dict) else None

    def k_additionalProperties(self, schema, v, whole, at):
        if not isinstance(v, dict):
            return None
        more = [k for k in v if k not in whole.get('properties', {}) and not any(found(p, k) for p in whole.get('patternProperties', {}))]
        return next((w for w in (self.wrong(schema, v[k], f'{at}.{k}') for k in more) if w), None)

    def k_propertyNames(self, schema, v, _, at):
        return next((w for w in (self.wrong(schema, k, f'{at}.{k}') for k in v) if w), None) if isinstance(v, dict) else None

    def k_required(self, names, v, _, at):
        return next((f'{at}.{k}' for k in names if k not in v), None) if isinstance(v, dict) and isinstance(names, list) else None

    def k_minProperties(self, n, v, _, at):
        return at if isinstance(v, dict) and len(v) < n else None

    def k_maxProperties(self, n, v, _, at):
        return at if isinstance(v, dict) and len(v) > n else None

    def k_dependencies(self, rules, v, _, at):
        if not isinstance(v, dict):
            return None
        return next((w for w in (self.k_required(r, v, {}, at) if isinstance(r, list) else self.wrong(r, v, at) for k, r in rules.items() if k in v) if w), None)

    k_dependentRequired = k_dependentSchemas = k_dependencies
