from peakline._C import dropin as dropin

version: str
torch_version: str
