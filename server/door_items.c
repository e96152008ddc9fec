/* door_items.c - what an answer says becomes items, one behind the other, and in a stream a door's events. Runs of content and reasoning begin with their first
 * byte, and end when something else begins; a call ends by itself, or with the answer. A stream joined is the whole answer: both are made of the same items.
 * The loop thread, in the call's account: without memory an item is missing, and the call ends when the step is over. */
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "server/call.h"
#include "server/openai_write.h"

static const struct qr_door *door_of(const struct qr_call *call)
{
    QR_ASSERT(call->kind->door != NULL);
    return call->kind->door;
}

/* The item that has not ended; NULL: there is none. */
static struct qr_item *open_item(struct qr_choice *choice)
{
    struct qr_items *items = &choice->items;
    return items->n > 0 && items->item[items->n - 1].open ? &items->item[items->n - 1] : NULL;
}

/* The door is told of items as they come. */
static bool tells(const struct qr_call *call)
{
    return call->params.stream || door_of(call)->tells_whole;
}

static bool keeps(const struct qr_call *call)
{
    return !call->params.stream || door_of(call)->keeps_items;
}

static void end_item(struct qr_call *call, struct qr_choice *choice)
{
    struct qr_item *item = open_item(choice);
    if (!item)
        return;
    item->open = false;
    if (tells(call) && door_of(call)->item_end)
        door_of(call)->item_end(call, item, &choice->deltas);
    if (keeps(call))
        return;
    qr_buf_release(&item->name);
    qr_buf_release(&item->id);
}

static void begin_item(struct qr_call *call, struct qr_choice *choice, enum qr_part part, const char *name, size_t n_name, const char *id)
{
    struct qr_items *items = &choice->items;
    end_item(call, choice);
    struct qr_item *grown = QR_GROW(items->item, items->n, items->cap);
    if (!grown) { /* those before stay where they are */
        items->cap = items->n;
        return;
    }
    items->item = grown;
    struct qr_item *item = &items->item[items->n];
    *item = (struct qr_item){.part = part, .index = items->n, .open = true};
    items->n++;
    if (id)
        qr_buf_put_str(&item->id, id);
    if (name)
        qr_buf_put(&item->name, name, n_name);
    if (tells(call) && door_of(call)->item_begin)
        door_of(call)->item_begin(call, item, &choice->deltas);
}

static void put_text(struct qr_call *call, struct qr_choice *choice, const char *text, size_t n)
{
    struct qr_item *item = open_item(choice);
    if (!item || n == 0)
        return;
    if (keeps(call))
        qr_buf_put(&item->text, text, n);
    if (tells(call) && door_of(call)->item_text)
        door_of(call)->item_text(call, item, text, n, &choice->deltas);
}

void qr_door_said(struct qr_call *call, struct qr_choice *choice, enum qr_part part, const char *text, size_t n)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(part == QR_PART_CONTENT || part == QR_PART_REASONING || part == QR_PART_ARGUMENTS);
    const struct qr_item *item = open_item(choice);
    if (part != QR_PART_ARGUMENTS && n > 0 && (!item || item->part != part))
        begin_item(call, choice, part, NULL, 0, NULL);
    put_text(call, choice, text, n);
}

void qr_door_call_begin(struct qr_call *call, struct qr_choice *choice, const char *name, size_t n_name, const char *id)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(name != NULL && id != NULL);
    begin_item(call, choice, QR_PART_CALL, name, n_name, id);
}

void qr_door_call_end(struct qr_call *call, struct qr_choice *choice, bool bare, bool whole)
{
    QR_ASSERT(call != NULL && choice != NULL);
    QR_ASSERT(!bare || whole);
    struct qr_item *item = open_item(choice);
    if (item)
        item->cut = !whole;
    if (bare)
        put_text(call, choice, "{}", 2);
    end_item(call, choice);
}

void qr_door_take(struct qr_call *call, struct qr_choice *choice, const struct qr_event *ev)
{
    QR_ASSERT(call != NULL && choice != NULL && ev != NULL);
    QR_ASSERT(call->n_choices == 1);
    const struct qr_door *door = door_of(call);
    qr_buf_clear(&choice->deltas);
    qr_write_note(call, choice, ev);
    if (tells(call) && !choice->begun && door->begin)
        door->begin(call, &choice->deltas);
    if (!choice->begun)
        choice->begun_us = qr_clock_us();
    choice->begun = true;
    if (choice->parser)
        qr_parts_feed(call, choice, ev);
    else
        qr_door_said(call, choice, QR_PART_CONTENT, ev->text, (size_t)ev->text_len);
    if (ev->finish != QR_FINISH_NONE)
        end_item(call, choice);
}

struct checking {
    const struct qr_buf *text; /* borrowed */
    bool object;               /* it is one */
};

static void check_object(void *arg)
{
    struct checking *c = arg;
    struct qr_json *v = NULL;
    struct qr_err err = {0};
    c->object = qr_json_parse(&v, c->text->data ? c->text->data : "", c->text->len, &qr_json_limits_request, &err) == 0 && qr_json_type(v) == QR_JSON_T_OBJECT;
    qr_json_free(v);
}

void qr_item_put_object(struct qr_buf *out, const struct qr_item *item)
{
    struct checking c = {.text = &item->text};
    QR_ASSERT(out != NULL && item != NULL);
    QR_ASSERT(item->part == QR_PART_CALL);
    qr_account_try(check_object, &c);
    if (c.object)
        qr_buf_put(out, item->text.data, item->text.len);
    else
        qr_buf_put_str(out, "{}");
}

void qr_items_release(struct qr_items *items)
{
    QR_ASSERT(items != NULL);
    QR_ASSERT(items->n <= items->cap);
    for (int32_t i = 0; i < items->n; i++) {
        qr_buf_release(&items->item[i].text);
        qr_buf_release(&items->item[i].name);
        qr_buf_release(&items->item[i].id);
    }
    qr_free(items->item);
    *items = (struct qr_items){0};
}
