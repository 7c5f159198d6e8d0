// What tsc must know of the file beside: it is not checked.
declare const loaded: any;
export default loaded;
