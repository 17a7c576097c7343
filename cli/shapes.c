/* SPDX-License-Identifier: Apache-2.0
 *
 * shapes.c - sizes of linear layers from the command line and from files. */
#include "cli/shapes.h"

#include "cli/exit_code.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE 256 /* bytes of a line in a file of shapes, comment included */

/* *value of the digits at *text, which is moved behind them. */
static bool take_extent(const char **text, int64_t *value)
{
    const char *at = *text;
    *value = 0;
    while (*at >= '0' && *at <= '9' && *value <= CLI_MOST_EXTENT)
        *value = 10 * *value + (*at++ - '0');
    const bool good = at > *text && *value <= CLI_MOST_EXTENT;
    *text = at;
    return good;
}

bool cli_parse_shape(const char *text, cli_shape *shape)
{
    return take_extent(&text, &shape->m) && *text++ == 'x' && take_extent(&text, &shape->n) &&
           *text++ == 'x' && take_extent(&text, &shape->k) && *text == 0;
}

const char *cli_shape_name(char out[CLI_SHAPE_NAME], const cli_shape *shape)
{
    snprintf(out, CLI_SHAPE_NAME, "%" PRId64 "x%" PRId64 "x%" PRId64, shape->m, shape->n, shape->k);
    return out;
}

int cli_shapes_add(cli_shapes *shapes, cli_shape shape)
{
    if (shapes->count == shapes->room) {
        const size_t room = 2 * shapes->room + 16;
        cli_shape *items = realloc(shapes->items, room * sizeof *items);
        if (items == NULL) {
            cli_error("out of memory");
            return CLI_MEMORY;
        }
        shapes->items = items;
        shapes->room = room;
    }
    shapes->items[shapes->count++] = shape;
    return CLI_DONE;
}

static const char *skip_spaces(const char *text)
{
    return text + strspn(text, " \t\r\n");
}

/* Whether a line without its comment is "M N K"; *empty if there is nothing on it. */
static bool parse_line(char *line, cli_shape *shape, bool *empty)
{
    line[strcspn(line, "#")] = 0;
    const char *at = skip_spaces(line);
    *empty = *at == 0;
    if (!take_extent(&at, &shape->m) || skip_spaces(at) == at)
        return false;
    at = skip_spaces(at);
    if (!take_extent(&at, &shape->n) || skip_spaces(at) == at)
        return false;
    at = skip_spaces(at);
    return take_extent(&at, &shape->k) && *skip_spaces(at) == 0;
}

static int read_lines(cli_shapes *shapes, FILE *file, const char *path)
{
    char line[LINE];
    for (int64_t number = 1; fgets(line, sizeof line, file) != NULL; number++) {
        cli_shape shape;
        bool empty;
        const bool whole = strchr(line, '\n') != NULL || feof(file);
        const bool good = parse_line(line, &shape, &empty);
        if (!whole || (!good && !empty)) {
            line[strcspn(line, "\r\n")] = 0;
            cli_error("%s, line %" PRId64 ": '%.40s' is not M N K (three numbers up to %d)", path,
                      number, line, CLI_MOST_EXTENT);
            return CLI_INPUT;
        }
        const int code = empty ? CLI_DONE : cli_shapes_add(shapes, shape);
        if (code != CLI_DONE)
            return code;
    }
    if (!ferror(file))
        return CLI_DONE;
    cli_error("%s: cannot read: %s", path, strerror(errno));
    return CLI_IO;
}

int cli_shapes_read(cli_shapes *shapes, const char *path)
{
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        const int error = errno;
        cli_error("%s: cannot open: %s", path, strerror(error));
        return error == ENOENT ? CLI_INPUT : error == ENOMEM ? CLI_MEMORY : CLI_IO;
    }
    errno = 0;
    const size_t before = shapes->count;
    int code = read_lines(shapes, file, path);
    fclose(file);
    if (code == CLI_DONE && shapes->count == before) {
        cli_error("%s: no shape in it", path);
        code = CLI_INPUT;
    }
    return code;
}

static bool has_layer(const cli_shapes *shapes, int64_t m, int64_t n, int64_t k)
{
    for (size_t i = 0; i < shapes->count; i++)
        if (shapes->items[i].m == m && shapes->items[i].n == n && shapes->items[i].k == k)
            return true;
    return false;
}

/* Adds every layer of `from`, once, with m rows. */
static int add_layers(cli_shapes *to, const cli_shapes *from, int64_t m)
{
    for (size_t i = 0; i < from->count; i++) {
        const cli_shape *s = &from->items[i];
        const int code = has_layer(to, m, s->n, s->k)
                             ? CLI_DONE
                             : cli_shapes_add(to, (cli_shape){m, s->n, s->k});
        if (code != CLI_DONE)
            return code;
    }
    return CLI_DONE;
}

int cli_shapes_set_m(cli_shapes *shapes, const char *list)
{
    cli_shapes made = {0};
    int code = CLI_DONE;
    for (const char *at = list; code == CLI_DONE; at++) {
        int64_t m;
        if (!take_extent(&at, &m) || (*at != ',' && *at != 0))
            code =
                cli_usage_error("--m %s: not numbers with commas between, such as 1,16,64", list);
        else
            code = add_layers(&made, shapes, m);
        if (*at == 0)
            break;
    }
    if (code == CLI_DONE) {
        const cli_shapes old = *shapes;
        *shapes = made;
        made = old;
    }
    cli_shapes_free(&made);
    return code;
}

void cli_shapes_free(cli_shapes *shapes)
{
    free(shapes->items);
    *shapes = (cli_shapes){0};
}
