// What tsc must know of the file beside: it is not checked.
export function diffArrays<T>(old: T[], fresh: T[], options?: { maxEditLength?: number }): { value: T[]; added: boolean; removed: boolean }[] | undefined;
