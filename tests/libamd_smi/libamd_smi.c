/* A library with the ABI of libamd_smi 7.0 for tests: it answers for GPUs that are not there.

   What it says stands in libamd_smi.conf beside the library, read anew by each process:
       gpus=8  device=74a1  name=AMD Instinct MI300X  vram=206158430208  compute_partition=SPX  memory_partition=NPS1
       abi=26  minor=0                                   (of the version that it reports)
       serial=0x1000                                     (of the first GPU; each later one has the next number)
       uncorrectable=0  replays=0  xgmi_down=0           (of the GPU `bad`, 0 being the first)
       throttled_ppt=500  throttled_hbm=0                (the same: so many of 1000 turns from one call to the next)
       retired=0  pending=0  unreservable=0  page_limit=128         (the same; page_limit of every GPU)
       power_cap=750000000  default_cap=750000000   (the first of the GPU `bad`)  active=prochot,hbm_thrm  (the same)
       ecc_mask=0x1  xgmi_correctable=0  holder=0   (a process with memory of the GPU `bad`)  pcie_peer=0  (of it, too)
       cper=SEVERITY:AFID                           (may stand several times: records of the GPU `bad`)
       status=0x100000000                                (an older GPU: indep_throttle_status in place of accumulators)
       hang=FUNCTION  crash=FUNCTION  error=FUNCTION:STATUS      (each may stand several times)
   Structures as in the Python package's amdsmi_wrapper.py; functions not written here are generated to answer
   NOT_SUPPORTED (build.py). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVAL = 1, NOT_SUPPORTED = 2 };
enum { LINK_DOWN = 0, LINK_UP = 1, LINK_DISABLED = 2 };

typedef struct { char market_name[256]; uint32_t vendor_id; char vendor_name[256]; uint32_t subvendor_id;
                 uint64_t device_id; uint32_t rev_id; char asic_serial[256]; uint32_t oam_id, compute_units;
                 uint64_t target; uint32_t subsystem_id, reserved[21]; } asic_info;
typedef struct { uint64_t correctable, uncorrectable, deferred, reserved[5]; } error_count;
typedef struct { char version[256], date[256], name[256]; } driver_info;
typedef struct { uint64_t socket; uint32_t current, average; uint64_t gfx, soc, memory; uint32_t limit;
                 uint64_t reserved[18]; } power_info;
typedef struct { uint8_t count; struct { uint32_t id; uint64_t version, reserved[2]; } list[80];
                 uint32_t reserved[7]; } firmware_info;
typedef struct { struct { uint16_t width; uint32_t speed, version, slot, max_version; uint64_t reserved[9]; } fixed;
                 struct { uint16_t width; uint32_t speed, bandwidth; uint64_t replays, recoveries, rollovers, sent,
                          received; uint32_t other_end; uint64_t reserved[12]; } now;
                 uint64_t reserved[32]; } pcie_info;
typedef struct { uint32_t total, status[8]; uint64_t reserved[7]; } xgmi_status;
typedef struct { uint32_t gfx_busy_inst[8]; uint16_t jpeg_busy[40], vcn_busy[4]; uint64_t accumulated[6][8]; } xcp_metrics;
typedef struct { uint16_t size; uint8_t format, content;
                 uint16_t edge, hotspot, memory_temperature, vr[3], gfx_activity, umc_activity, mm_activity, average_power;
                 uint64_t energy, clock; uint16_t average_clocks[7], gfx, soc, memory, video[4]; uint32_t throttle;
                 uint16_t fan, width, speed; uint32_t gfx_acc, memory_acc; uint16_t hbm[4]; uint64_t timestamp;
                 uint16_t voltages[3]; uint64_t indep_throttle; uint16_t power, vcn[4]; uint32_t lock;
                 uint16_t xgmi_width, xgmi_speed; uint64_t pcie[5], xgmi[16]; uint16_t gfx_clocks[8], other_clocks[12],
                 jpeg[32]; uint32_t naks[2]; uint64_t turns, prochot, ppt, socket, vr_thermal, hbm_thermal;
                 uint16_t partitions; xcp_metrics xcp[8]; uint32_t recovery; uint64_t bandwidth; uint16_t links[8];
               } gpu_metrics;
typedef struct { uint32_t major, minor, release; char *build; } library_version;

static char *setting(const char *key, const char *otherwise, int occurrence) {
    static char found[256];
    char path[4096], line[512];
    Dl_info self;
    size_t length = strlen(key);
    strcpy(found, otherwise);
    if (!dladdr((void *)setting, &self)) return found;
    snprintf(path, sizeof path, "%s", self.dli_fname);
    strcpy(strrchr(path, '/') + 1, "libamd_smi.conf");
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, key, length) && line[length] == '=' && !occurrence--)
            snprintf(found, sizeof found, "%s", line + length + 1);
    }
    if (file) fclose(file);
    return found;
}

static uint64_t number(const char *key, const char *otherwise) { return strtoull(setting(key, otherwise, 0), 0, 0); }

/* What the configuration wants this function to do instead of its work. */
uint32_t lab_status(const char *function, uint32_t otherwise) {
    for (int n = 0; *setting("hang", "", n); n++)
        if (!strcmp(setting("hang", "", n), function)) for (;;) pause();
    for (int n = 0; *setting("crash", "", n); n++)
        if (!strcmp(setting("crash", "", n), function)) abort();
    for (int n = 0; *setting("error", "", n); n++) {
        char *wanted = setting("error", "", n), *colon = strchr(wanted, ':');
        if (colon && !strncmp(wanted, function, colon - wanted) && !function[colon - wanted]) return atoi(colon + 1);
    }
    return otherwise;
}
#define ENTER uint32_t status = lab_status(__func__, SUCCESS); if (status) return status

/* A handle is the GPU's number, counted from one so that it is not null. */
static uint64_t index_of(void *gpu) { return (uint64_t)gpu - 1; }
static uint64_t if_bad(void *gpu, const char *key) { return index_of(gpu) == number("bad", "0") ? number(key, "0") : 0; }

static int initialised;
uint32_t amdsmi_init(uint64_t flags) { ENTER; initialised = 1; return SUCCESS; }
uint32_t amdsmi_shut_down(void) { ENTER; initialised = 0; return SUCCESS; }

uint32_t amdsmi_get_lib_version(library_version *version) {
    ENTER;
    if (number("init_first", "0") && !initialised) return 32;
    *version = (library_version){number("abi", "26"), number("minor", "0"), 2, "lab"};
    return SUCCESS;
}

uint32_t amdsmi_get_socket_handles(uint32_t *count, void **sockets) {
    ENTER;
    *count = number("gpus", "8");
    for (uint64_t n = 0; sockets && n < *count; n++) sockets[n] = (void *)(n + 1);
    return SUCCESS;
}

uint32_t amdsmi_get_processor_handles(void *socket, uint32_t *count, void **gpus) {
    ENTER;
    *count = 1;
    if (gpus) gpus[0] = socket;
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_device_bdf(void *gpu, uint64_t *bdf) {
    ENTER;
    *bdf = (index_of(gpu) * (0x100 / number("slots", "8")) + 5) << 8;
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_asic_info(void *gpu, asic_info *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    strcpy(info->market_name, setting("name", "AMD Instinct MI300X", 0));
    strcpy(info->vendor_name, "Advanced Micro Devices Inc. [AMD/ATI]");
    snprintf(info->asic_serial, sizeof info->asic_serial, "%lx", number("serial", "0x1000") + index_of(gpu));
    info->vendor_id = 0x1002;
    info->device_id = strtoull(setting("device", "74a1", 0), 0, 16);
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_memory_total(void *gpu, uint32_t type, uint64_t *bytes) {
    ENTER;
    *bytes = number("vram", "206158430208");
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_memory_usage(void *gpu, uint32_t type, uint64_t *bytes) {
    ENTER;
    *bytes = 297 << 20;
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_compute_partition(void *gpu, char *name, uint32_t length) {
    ENTER;
    snprintf(name, length, "%s", setting("compute_partition", "SPX", 0));
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_memory_partition(void *gpu, char *name, uint32_t length) {
    ENTER;
    snprintf(name, length, "%s", setting("memory_partition", "NPS1", 0));
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_driver_info(void *gpu, driver_info *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    strcpy(info->version, setting("driver", "6.12.12", 0));
    strcpy(info->name, "amdgpu");
    return SUCCESS;
}

uint32_t amdsmi_get_fw_info(void *gpu, firmware_info *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    info->count = 2;
    info->list[0].id = 7; /* CP_MEC1 */
    info->list[0].version = 173;
    info->list[1].id = 77; /* PM */
    info->list[1].version = number("firmware_pm", "0x00557300");
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_total_ecc_count(void *gpu, error_count *count) {
    ENTER;
    *count = (error_count){.correctable = if_bad(gpu, "correctable"), .uncorrectable = if_bad(gpu, "uncorrectable")};
    return SUCCESS;
}

uint32_t amdsmi_get_pcie_info(void *gpu, pcie_info *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    info->now.width = 16;
    info->now.speed = 32000;
    info->now.replays = if_bad(gpu, "replays");
    return SUCCESS;
}

uint32_t amdsmi_get_temp_metric(void *gpu, uint32_t sensor, uint32_t metric, int64_t *celsius) {
    ENTER;
    *celsius = number("temperature", "41");
    return SUCCESS;
}

uint32_t amdsmi_get_power_info(void *gpu, power_info *info) {
    ENTER;
    memset(info, 0, sizeof *info);
    info->current = number("power", "132");
    info->average = 0xFFFF; /* not there on this model */
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_xgmi_link_status(void *gpu, xgmi_status *links) {
    ENTER;
    memset(links, 0, sizeof *links);
    links->total = number("gpus", "8");
    for (uint64_t n = 0; n < links->total && n < 8; n++) links->status[n] = n == index_of(gpu) ? LINK_DISABLED : LINK_UP;
    if (if_bad(gpu, "xgmi_down")) links->status[index_of(gpu) ? 0 : 1] = LINK_DOWN;
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_metrics_info(void *gpu, gpu_metrics *now) {
    ENTER;
    static uint64_t calls[64], ppt[64], hbm[64];
    uint64_t n = index_of(gpu) % 64;
    memset(now, 0xFF, sizeof *now); /* all bits set: there is no such value */
    now->hotspot = number("temperature", "41");
    now->memory_temperature = 38;
    now->gfx_activity = 97;
    now->memory = 900;
    for (int xcd = 0; xcd < 8; xcd++) now->gfx_clocks[xcd] = 2000 + 10 * xcd;
    if (*setting("status", "", 0)) {
        now->average_power = number("power", "132");
        now->indep_throttle = if_bad(gpu, "status");
        return SUCCESS;
    }
    now->power = number("power", "132");
    now->turns = 5000 + 1000 * calls[n]++;
    now->ppt = ppt[n] += if_bad(gpu, "throttled_ppt");
    now->hbm_thermal = hbm[n] += if_bad(gpu, "throttled_hbm");
    now->prochot = now->socket = now->vr_thermal = 0;
    return SUCCESS;
}

uint32_t amdsmi_get_gpu_ecc_enabled(void *gpu, uint64_t *blocks) { ENTER; *blocks = number("ecc_mask", "0x81"); return SUCCESS; }

uint32_t amdsmi_get_gpu_ecc_count(void *gpu, uint32_t block, error_count *count) {
    ENTER;
    *count = (error_count){0};
    if (block == 1) *count = (error_count){.correctable = if_bad(gpu, "correctable"), .uncorrectable = if_bad(gpu, "uncorrectable")};
    if (block == 128) count->correctable = if_bad(gpu, "xgmi_correctable");
    return SUCCESS;
}

typedef struct { uint64_t address, size; uint32_t status, padding; } page;
uint32_t amdsmi_get_gpu_bad_page_info(void *gpu, uint32_t *count, page *pages) {
    ENTER;
    uint32_t states[3] = {if_bad(gpu, "retired"), if_bad(gpu, "pending"), if_bad(gpu, "unreservable")}, n = 0;
    *count = states[0] + states[1] + states[2];
    for (uint32_t state = 0; pages && state < 3; state++)
        for (uint32_t left = states[state]; left--; n++) pages[n] = (page){0x1000 * n, 4096, state, 0};
    return SUCCESS;
}
uint32_t amdsmi_get_gpu_bad_page_threshold(void *gpu, uint32_t *limit) { ENTER; *limit = number("page_limit", "128"); return SUCCESS; }

typedef struct { uint64_t cap, usual, dpm, least, most, reserved[3]; } power_cap;
uint32_t amdsmi_get_power_cap_info(void *gpu, uint32_t sensor, power_cap *info) {
    ENTER;
    uint64_t usual = number("default_cap", "750000000"), capped = if_bad(gpu, "power_cap");
    *info = (power_cap){capped ? capped : usual, usual, 0, 0, usual};
    return SUCCESS;
}

typedef struct { uint64_t numbers[15]; uint8_t prochot, ppt, socket, vr, hbm, gfx, padding[2]; uint64_t acc[8][8][8];
                 uint8_t active[4][8][8]; uint64_t reserved[3][8][8]; } violations;
uint32_t amdsmi_get_violation_status(void *gpu, violations *now) {
    ENTER;
    memset(now, 0xFF, sizeof *now);
    uint8_t bad = index_of(gpu) == number("bad", "0");
    char *active = setting("active", "", 0);
    now->prochot = bad && strstr(active, "prochot");
    now->ppt = bad && strstr(active, "ppt");
    now->socket = bad && strstr(active, "socket");
    now->vr = bad && strstr(active, "vr_thrm");
    now->hbm = bad && strstr(active, "hbm");
    return SUCCESS;
}

typedef struct { char name[256]; uint32_t pid, padding; uint64_t mem, gfx, enc; uint32_t more[12]; uint64_t gtt, cpu, vram;
                 uint32_t further[10]; char container[256]; uint32_t cus, reserved[11]; } process;
uint32_t amdsmi_get_gpu_process_list(void *gpu, uint32_t *count, process *list) {
    ENTER;
    *count = if_bad(gpu, "holder") ? 1 : 0;
    if (!*count) return SUCCESS;
    memset(list, 0, sizeof *list);
    strcpy(list->name, "python3");
    list->pid = number("holder", "0");
    list->vram = 1 << 30;
    return SUCCESS;
}

uint32_t amdsmi_topo_get_link_type(void *one, void *two, uint64_t *hops, uint32_t *type) {
    ENTER;
    *hops = 1;
    *type = if_bad(one, "pcie_peer") || if_bad(two, "pcie_peer") ? 1 : 2;
    return SUCCESS;
}

typedef struct { uint32_t links, padding; struct { uint64_t bdf; uint32_t rate, most, type, padding; uint64_t read, write,
                 reserved[2]; } link[64]; uint64_t reserved[7]; } link_metrics;
uint32_t amdsmi_get_link_metrics(void *gpu, link_metrics *found) {
    ENTER;
    memset(found, 0, sizeof *found);
    found->links = number("gpus", "8");
    for (uint64_t n = 0; n < found->links && n < 8; n++) {
        amdsmi_get_gpu_device_bdf((void *)(n + 1), &found->link[n].bdf);
        found->link[n].rate = 32;
        found->link[n].type = 2;
    }
    return SUCCESS;
}

/* A record is its header and one byte with the AFID, then bytes above 127, as real records have them. */
#pragma pack(push, 1)
typedef struct { char signature[4]; uint16_t revision; uint32_t end; uint16_t sections; uint32_t severity, valid, length;
                 uint8_t second, minute, hour, flag, day, month, year, century; char platform[16]; uint8_t partition[16];
                 char creator[16]; uint8_t notify[16]; char id[8]; uint32_t flags; uint64_t persistence;
                 uint8_t reserved[12], afid, rest[7]; } cper;
#pragma pack(pop)
uint32_t amdsmi_get_gpu_cper_entries(void *gpu, uint32_t mask, char *data, uint64_t *size, void **headers, uint64_t *count,
                                     uint64_t *cursor) {
    ENTER;
    uint64_t at = 0;
    if (index_of(gpu) == number("bad", "0"))
        for (; at < 20 && *setting("cper", "", *cursor); at++, ++*cursor) {
            cper *record = (cper *)data + at;
            memset(record, 0xEE, sizeof *record);
            memcpy(record->signature, "CPER", 4);
            record->severity = atoi(setting("cper", "", *cursor));
            record->afid = atoi(strchr(setting("cper", "", *cursor), ':') + 1);
            record->length = sizeof *record;
            record->second = record->minute = record->hour = record->day = record->month = 11;
            record->year = 26;
        }
    *count = at;
    return at == 20 && *setting("cper", "", *cursor) ? 39 : SUCCESS;
}

uint32_t amdsmi_get_afids_from_cper(char *data, uint32_t size, uint64_t *afids, uint32_t *count) {
    ENTER;
    if (size != sizeof(cper) || ((cper *)data)->rest[0] != 0xEE) return INVAL;
    afids[0] = ((cper *)data)->afid;
    *count = 1;
    return SUCCESS;
}
