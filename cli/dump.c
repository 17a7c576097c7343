/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.c - the tables of verbs and options in the words of bash, zsh, scdoc, and as a plain table.
 */
#include "cli/dump.h"

#include "cli/exit_code.h"
#include "cli/verbs.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Calls fn for every option of the verb. */
static void each_option(const cli_verb *verb, void (*fn)(const cli_verb *, const cli_option *))
{
    const cli_option *option;
    for (int64_t i = 0; (option = cli_option_at(i)) != NULL; i++) {
        if (option->verbs & verb->bit)
            fn(verb, option);
    }
}

static void each_verb(void (*fn)(const cli_verb *))
{
    const cli_verb *verb;
    for (int64_t i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        fn(verb);
}

static void print_choices(const cli_option *option)
{
    const char *name;
    for (int64_t i = 0; (name = option->choice(i)) != NULL; i++)
        printf("%s%s", i > 0 ? " " : "", name);
}

/* ---- tsv: verb, option, letter, argument, help ---- */

static void tsv_option(const cli_verb *verb, const cli_option *option)
{
    printf("%s\t--%s\t%s%c\t%s\t%s\n", verb->name, option->name, option->letter ? "-" : "",
           option->letter ? option->letter : '-', option->argument != NULL ? option->argument : "",
           option->help);
}

static void tsv_verb(const cli_verb *verb)
{
    each_option(verb, tsv_option);
}

static int dump_tsv(void)
{
    puts("verb\toption\tletter\targument\thelp");
    each_verb(tsv_verb);
    return CLI_DONE;
}

/* ---- scdoc: the OPTIONS of one man page ---- */

/* Text with the marks of scdoc escaped. */
static void scdoc_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("\\*_<>~#[", *text) != NULL)
            putchar('\\');
        putchar(*text);
    }
}

static void scdoc_option(const cli_verb *verb, const cli_option *option)
{
    (void)verb;
    if (option->letter)
        printf("*-%c*, ", option->letter);
    printf("*--%s*", option->name);
    if (option->argument != NULL) {
        fputs(" _", stdout);
        fputs(option->argument, stdout);
        putchar('_');
    }
    fputs("\n\t", stdout);
    putchar(toupper((unsigned char)option->help[0]));
    scdoc_text(option->help + 1);
    putchar('.');
    if (option->more != NULL) {
        putchar(' ');
        scdoc_text(option->more);
    }
    fputs("\n\n", stdout);
}

static int dump_scdoc(const char *name)
{
    const cli_verb *verb = cli_verb_find(name);
    if (verb == NULL)
        return cli_usage_error("--dump-options scdoc: there is no verb '%s'", name);
    each_option(verb, scdoc_option);
    return CLI_DONE;
}

/* The schemes as a list of terms. */
static int dump_scdoc_schemes(void)
{
    fp8_scheme_info info;
    for (int64_t i = 0; fp8_scheme(i, &info) == FP8_OK; i++) {
        printf("*%s*\n\t%c", info.name, toupper((unsigned char)info.summary[0]));
        scdoc_text(info.summary[0] ? info.summary + 1 : "");
        printf(". Grid ");
        scdoc_text(info.grid);
        printf("; scales ");
        scdoc_text(info.scale_name);
        printf(" in ");
        scdoc_text(info.scale_dtype);
        printf("; activations ");
        scdoc_text(info.activations);
        printf("; loaded by ");
        scdoc_text(info.loaders);
        printf(".\n\n");
    }
    return CLI_DONE;
}

/* ---- bash ---- */

static void bash_word(const cli_verb *verb, const cli_option *option)
{
    (void)verb;
    if (option->letter)
        printf(" -%c", option->letter);
    printf(" --%s", option->name);
}

static void print_subjects(const cli_verb *verb)
{
    const char *name;
    for (int64_t i = 0; (name = verb->subject(i)) != NULL; i++)
        printf("%s%s", i > 0 ? " " : "", name);
}

static void bash_verb(const cli_verb *verb)
{
    printf("    %s) options='", verb->name);
    each_option(verb, bash_word);
    putchar('\'');
    if (verb->subject != NULL) {
        fputs(" subjects='", stdout);
        print_subjects(verb);
        putchar('\'');
    }
    fputs(" ;;\n", stdout);
}

/* The words before an argument: "quantize\ -o | quantize\ --output | ..", since a name may mean
 * something else for another verb. */
static void bash_pattern(const cli_option *option)
{
    const cli_verb *verb;
    const char *between = "";
    for (int64_t i = 0; (verb = cli_verb_at(i)) != NULL; i++) {
        if (!(option->verbs & verb->bit))
            continue;
        if (option->letter)
            printf("%s%s\\ -%c", between, verb->name, option->letter);
        printf("%s%s\\ --%s", option->letter ? " | " : between, verb->name, option->name);
        between = " | ";
    }
}

/* The case of one option's argument: "quantize\ --output) .. ;;". */
static void bash_argument(const cli_option *option)
{
    static const char *const actions[] = {
        [CLI_NOTHING] = "COMPREPLY=()",
        [CLI_FILE] = "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\"))",
        [CLI_DIRECTORY] = "compopt -o filenames; COMPREPLY=($(compgen -d -- \"$current\"))",
        [CLI_CHECKPOINT] = "compopt -o filenames; COMPREPLY=($(compgen -f -- \"$current\"))",
    };
    fputs("    ", stdout);
    bash_pattern(option);
    fputs(") ", stdout);
    if (option->choice != NULL) {
        fputs("COMPREPLY=($(compgen -W '", stdout);
        print_choices(option);
        fputs("' -- \"$current\"))", stdout);
    } else {
        fputs(actions[option->complete], stdout);
    }
    fputs("; return ;;\n", stdout);
}

static void print_verb_name(const cli_verb *verb)
{
    printf("%s ", verb->name);
}

static int dump_bash(void)
{
    const cli_option *option;
    puts("# GENERATED by fp8 --dump-options bash. bash completion for fp8.\n"
         "_fp8() {\n"
         "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]} "
         "options= subjects=\n"
         "    # --option=value comes as three words\n"
         "    [[ $current == = ]] && current=\n"
         "    [[ $previous == = ]] && previous=${COMP_WORDS[COMP_CWORD - 2]}\n"
         "    if ((COMP_CWORD == 1)); then");
    fputs("        COMPREPLY=($(compgen -W '", stdout);
    each_verb(print_verb_name);
    puts("help --help --version' -- \"$current\"))\n        return\n    fi\n"
         "    if [[ ${COMP_WORDS[1]} == help ]]; then");
    fputs("        COMPREPLY=($(compgen -W '", stdout);
    each_verb(print_verb_name);
    puts("' -- \"$current\"))\n        return\n    fi\n    case \"${COMP_WORDS[1]} $previous\" in");
    for (int64_t i = 0; (option = cli_option_at(i)) != NULL; i++) {
        if (option->argument != NULL)
            bash_argument(option);
    }
    puts("    esac\n    case ${COMP_WORDS[1]} in");
    each_verb(bash_verb);
    puts("    esac\n"
         "    if [[ $current == -* ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$options\" -- \"$current\"))\n"
         "    elif [[ -n $subjects ]]; then\n"
         "        COMPREPLY=($(compgen -W \"$subjects\" -- \"$current\"))\n"
         "    else\n"
         "        compopt -o filenames\n"
         "        COMPREPLY=($(compgen -f -- \"$current\"))\n"
         "    fi\n"
         "}\n"
         "complete -F _fp8 fp8");
    return CLI_DONE;
}

/* ---- zsh ---- */

/* Text inside '..:..[..]' of _arguments. */
static void zsh_text(const char *text)
{
    for (; *text; text++) {
        if (strchr("[]:\\", *text) != NULL)
            putchar('\\');
        if (*text == '\'')
            fputs("'\\'", stdout);
        putchar(*text);
    }
}

static void zsh_option(const cli_verb *verb, const cli_option *option)
{
    static const char *const actions[] = {"", "_files", "_directories", "_files"};
    (void)verb;
    const char *many = option->kind == CLI_PATTERN || option->kind == CLI_SHAPE ? "*" : "";
    if (option->letter)
        printf("            %s'(-%c --%s)'{-%c%s,--%s%s}'[", many, option->letter, option->name,
               option->letter, option->argument != NULL ? "+" : "", option->name,
               option->argument != NULL ? "=" : "");
    else
        printf("            '%s--%s%s[", many, option->name, option->argument != NULL ? "=" : "");
    zsh_text(option->help);
    putchar(']');
    if (option->argument != NULL) {
        putchar(':');
        zsh_text(option->argument);
        putchar(':');
        if (option->choice != NULL) {
            putchar('(');
            print_choices(option);
            putchar(')');
        } else {
            fputs(actions[option->complete], stdout);
        }
    }
    puts("' \\");
}

static void zsh_verb(const cli_verb *verb)
{
    printf("    %s)\n        _arguments -s \\\n", verb->name);
    each_option(verb, zsh_option);
    if (verb->subject != NULL) {
        fputs("            ':subject:(", stdout);
        print_subjects(verb);
        puts(")' \\");
    }
    for (int i = 0; i < verb->most && verb->subject == NULL; i++)
        puts("            ':checkpoint:_files' \\");
    puts("            && return\n        ;;");
}

static void zsh_verb_summary(const cli_verb *verb)
{
    printf("        '%s:", verb->name);
    zsh_text(verb->summary);
    puts("'");
}

static int dump_zsh(void)
{
    puts("#compdef fp8\n"
         "# GENERATED by fp8 --dump-options zsh. zsh completion for fp8.\n"
         "_fp8() {\n"
         "    local -a verbs\n"
         "    local state line\n"
         "    verbs=(");
    each_verb(zsh_verb_summary);
    puts("        'help:print the help of a verb'\n"
         "    )\n"
         "    _arguments -C '(-h --help)'{-h,--help}'[print help]' '(-V "
         "--version)'{-V,--version}'[print the version]' \\\n"
         "        '1:verb:->verb' '*::argument:->arguments' && return\n"
         "    if [[ $state == verb ]]; then\n"
         "        _describe verb verbs\n"
         "        return\n"
         "    fi\n"
         "    case $line[1] in\n"
         "    help) _describe verb verbs ;;");
    each_verb(zsh_verb);
    puts("    esac\n}\n_fp8 \"$@\"");
    return CLI_DONE;
}

int cli_dump(int argc, char **argv)
{
    const char *format = argc > 0 ? argv[0] : "";
    if (argc == 1 && strcmp(format, "tsv") == 0)
        return dump_tsv();
    if (argc == 1 && strcmp(format, "bash") == 0)
        return dump_bash();
    if (argc == 1 && strcmp(format, "zsh") == 0)
        return dump_zsh();
    if (argc == 2 && strcmp(format, "scdoc") == 0)
        return dump_scdoc(argv[1]);
    if (argc == 1 && strcmp(format, "scdoc-schemes") == 0)
        return dump_scdoc_schemes();
    return cli_usage_error(
        "--dump-options takes bash, zsh, tsv, scdoc-schemes, or scdoc and a verb");
}
